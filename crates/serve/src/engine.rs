//! The engine: one thread's connections, driven by whoever owns it.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use thruway_http1::date::DATE_BYTES;
use thruway_http1::{BodyPlan, Head, ResponseFraming};

use crate::Error;
use crate::connection::{Connection, Payload, Phase};
use crate::connections::{Connections, monotonic_us};
use crate::exchange::{Handler, Response, Ticket};
use crate::listener::Listener;
use crate::output::Part;
use crate::poller::{Bell, Event, Events, Poller, Waiter, Waker};
use crate::settings::Settings;
use crate::slab::ConnectionId;
use crate::stream::Written;
use crate::unchunk::Unchunk;
use crate::workers::WorkerHandle;

/// Bytes read at once. A head that has come whole is understood where it was read.
const INBOX_BYTES: usize = 64 << 10;

/// Connections accepted before the others get their turns again.
const ACCEPTS_MAX: usize = 64;

/// How long no connection is accepted after the system has refused one for lack of something.
const PAUSE_MS: u64 = 100;

/// Short turns between two looks at what has happened.
const TURNS_PER_POLL: u32 = 32;

/// Time between two looks at what has happened, whatever the turns.
const POLL_INTERVAL_US: u64 = 500;

/// Words that are no ids: those of the waker, the mailbox, the bell and, counted down from there, the listeners.
const WAKER: u64 = u64::MAX;
const MAILBOX: u64 = WAKER - 1;
const BELL: u64 = MAILBOX - 1;
const FIRST_LISTENER: u64 = BELL - 1;
const LISTENERS_MAX: u64 = 1 << 12;

/// Serves connections, a turn at a time.
///
/// A turn is one request, or one quantum of a body. The owner calls [`poll`](Self::poll) to learn what
/// has happened, and [`turn`](Self::turn) until it says that there is nothing left to do.
#[derive(Debug)]
pub struct Engine {
    pub(crate) connections: Connections,
    pub(crate) worker: Option<WorkerHandle>,
    listeners: Vec<Listener>,
    is_listening: bool,
    /// Another thread has ended the wait.
    pub(crate) is_woken: bool,
    /// The worker that was asked for a request.
    pub(crate) asked: Option<usize>,
    /// When it was last looked whether one should be asked.
    pub(crate) asked_us: u64,
    paused_until_ms: u64,
    waiter: Waiter,
    waker: Waker,
    bell: Bell,
    pub(crate) inbox: Vec<u8>,
    pub(crate) head: Head,
    pub(crate) clock: Clock,
}

/// When the engine looked for events, and what it did since.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    pub(crate) looked_us: u64,
    pub(crate) turns: u32,
    /// When the wait began that is going on.
    pub(crate) wait_began_us: Cell<Option<u64>>,
}

impl Engine {
    /// An engine for connections from `listeners`, and from the other workers of its group.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn new(
        settings: Settings,
        listeners: Vec<Listener>,
        worker: Option<WorkerHandle>,
    ) -> Result<Self, Error> {
        let poller = Poller::new()?;
        let waiter = poller.waiter();
        let waker = poller.waker(WAKER)?;
        let bell = poller.bell(BELL)?;
        if let Some(worker) = &worker {
            poller
                .add_mailbox(worker.mailbox(), MAILBOX)
                .map_err(|errno| Error::system("watch a mailbox", errno))?;
        }
        let mut engine = Self {
            connections: Connections::new(poller, settings),
            worker,
            listeners,
            is_listening: false,
            is_woken: false,
            asked: None,
            asked_us: 0,
            paused_until_ms: 0,
            waiter,
            waker,
            bell,
            inbox: vec![0; INBOX_BYTES],
            head: Head::new(),
            clock: Clock::default(),
        };
        engine.listen()?;
        Ok(engine)
    }

    /// Learns what has happened. With nothing to do it waits for that, `timeout_ms` at most (none:
    /// until something happens, or a signal comes).
    pub fn poll(&mut self, events: &mut Events, timeout_ms: Option<u64>) {
        let has_work = self.connections.queue.len() > 0;
        let timeout_ms = if has_work { Some(0) } else { self.begin_wait(timeout_ms) };
        self.waiter.wait(events, timeout_ms);
        self.take(events);
    }

    /// Learns what has happened meanwhile, now and then: for between two turns.
    ///
    /// With many short turns it is a look every [`TURNS_PER_POLL`] of them, so that the look itself
    /// costs little; with long ones, every turn, so that what waits longest is served next.
    pub fn poll_if_due(&mut self, events: &mut Events) {
        let is_due = || monotonic_us() >= self.clock.looked_us + POLL_INTERVAL_US;
        if self.clock.turns >= TURNS_PER_POLL || is_due() {
            self.look(events);
        }
    }

    /// Learns what has happened, without a wait.
    pub(crate) fn look(&mut self, events: &mut Events) {
        self.waiter.wait(events, Some(0));
        self.take(events);
    }

    /// Serves the next connection in line; false if there is nothing to do.
    pub fn turn(&mut self, handler: &mut impl Handler) -> bool {
        while let Some((slot, _)) = self.connections.queue.next() {
            let Some(id) = self.connections.begin_turn(slot) else { continue };
            self.clock.turns += 1;
            if let Some(worker) = &mut self.worker {
                worker.note_turn();
                self.publish();
            }
            self.serve(id, handler);
            self.connections.settle(id);
            return true;
        }
        // The turns may have ended connections: there may be no event any more that tells of room.
        self.listen_again();
        false
    }

    /// Whether its owner is to call [`turn`](Self::turn) and look around, instead of another wait.
    pub fn wants_turn(&mut self) -> bool {
        std::mem::take(&mut self.is_woken)
            || self.connections.queue.len() > 0
            || self.connections.warnings.has_some()
    }

    /// Whether connections wait for a turn.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        self.connections.queue.len() > 0
    }

    /// Waits in the engine's place: hand what it brings to [`take`](Self::take).
    #[must_use]
    pub fn waiter(&self) -> Waiter {
        self.waiter.clone()
    }

    /// Ends a wait.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Calls the thread that stands in.
    #[must_use]
    pub fn bell(&self) -> Bell {
        self.bell.clone()
    }

    /// To be called before a wait: how long it may last, if nothing is to be late, `timeout_ms` at most.
    #[must_use]
    pub fn begin_wait(&mut self, timeout_ms: Option<u64>) -> Option<u64> {
        if self.connections.queue.len() > 0 {
            return Some(0);
        }
        let now_us = monotonic_us();
        self.clock.wait_began_us.set(Some(now_us));
        if self.worker.is_some() {
            self.connections.now_us = now_us;
            self.publish();
            self.ask();
        }
        [timeout_ms, self.next_deadline_ms()].into_iter().flatten().min()
    }

    /// How long nothing is late.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        let quiet = self.connections.timers.next_expiry_ms(self.connections.now_ms);
        let pause = (self.paused_until_ms > self.connections.now_ms).then_some(PAUSE_MS);
        [quiet, pause].into_iter().flatten().min()
    }

    /// Takes in what a wait has brought.
    pub fn take(&mut self, events: &mut Events) {
        self.note_time();
        self.connections.tick();
        for event in events.drain() {
            self.take_event(event);
        }
        self.share();
        if self.connections.is_draining {
            self.close_idle();
        }
        self.listen_again();
    }

    /// The date for an answer.
    pub fn date(&mut self) -> [u8; DATE_BYTES] {
        self.connections.date()
    }

    /// The socket of a request's connection, to wait until it takes bytes.
    #[must_use]
    pub fn socket(&self, ticket: Ticket) -> Option<BorrowedFd<'_>> {
        let connection =
            self.connections.slab.get(ticket.connection).filter(|found| found.is_of(ticket));
        connection.map(|connection| connection.socket.as_fd())
    }

    /// Whether a request's connection wants a turn, such as for the next request: that may be so after
    /// the answer, too.
    #[must_use]
    pub fn has_work(&self, ticket: Ticket) -> bool {
        self.connections.slab.get(ticket.connection).is_some_and(Connection::has_work)
    }

    /// Answers a request for which a ticket was taken. If the client is gone, so is the answer.
    pub fn respond(&mut self, ticket: Ticket, response: Response<'_>) {
        let (head, plan) = (response.head, response.plan);
        if plan.framing != ResponseFraming::Decoded {
            return self.connections.respond(ticket, response);
        }
        self.begin(ticket, head, plan);
        match response.payload {
            Payload::Slices(slices) => slices.iter().for_each(|slice| {
                self.write(ticket, slice);
            }),
            Payload::Parts(parts) => parts.iter().filter_map(Part::bytes).for_each(|bytes| {
                self.write(ticket, bytes);
            }),
            Payload::Empty | Payload::File { .. } => {}
        }
        self.finish(ticket);
    }

    /// Starts an answer whose body comes in pieces. Its head waits for the first piece, or for
    /// [`flush`](Self::flush).
    pub fn begin(&mut self, ticket: Ticket, head: &[u8], plan: BodyPlan) -> Written {
        let written = self.connections.begin(ticket, head, plan);
        if plan.framing == ResponseFraming::Decoded
            && let Some(connection) = self.connections.connection_of(ticket)
        {
            connection.unchunk = Unchunk::new().map(Box::new);
        }
        written
    }

    /// Sends a piece of the body, or keeps what the client does not take now. One that is longer than what
    /// is left of the promised length resets the connection.
    pub fn write(&mut self, ticket: Ticket, piece: &[u8]) -> Written {
        let connection = self.connections.connection_of(ticket);
        match connection.and_then(|connection| connection.unchunk.as_mut()) {
            None => self.connections.write(ticket, piece),
            Some(unchunk) => match unchunk.take(piece) {
                Ok(body) => self.connections.write(ticket, &body),
                Err(_) => {
                    self.connections.abort(ticket);
                    Written::Gone
                }
            },
        }
    }

    /// What may wait of an answer before whatever writes it has to wait.
    #[must_use]
    pub fn backlog_bytes_max(&self) -> u64 {
        let settings = &self.connections.settings;
        settings.response_memory_bytes_max as u64 + settings.response_file_bytes_max
    }

    /// Ends what has taken too long: for those who wait for a client while nobody may be left to
    /// [`poll`](Self::poll).
    pub fn tick(&mut self) {
        self.connections.tick();
    }

    /// Sends what waits, as far as the client takes it.
    pub fn flush(&mut self, ticket: Ticket) -> Written {
        self.connections.flush_stream(ticket)
    }

    /// Ends a body that came in pieces; how many bytes are missing. One that is shorter than was promised
    /// resets the connection.
    pub fn finish(&mut self, ticket: Ticket) -> u64 {
        self.connections.finish(ticket)
    }

    /// Ends the connection in the middle of an answer, so that the client cannot take it for whole.
    pub fn abort(&mut self, ticket: Ticket) {
        self.connections.abort(ticket);
    }

    /// Gives the connection away, with the bytes that were read from it and not understood; none if
    /// the client is gone or has not yet taken what was written.
    pub fn detach(&mut self, ticket: Ticket) -> Option<(OwnedFd, Vec<u8>)> {
        self.connections.detach(ticket)
    }

    /// What could not be done since the last time, for the log: there may be several. The same is not
    /// said again for ten seconds.
    pub fn warning(&mut self) -> Option<Error> {
        self.connections.warnings.take()
    }

    /// Open connections.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.connections.slab.len()
    }

    /// Takes the connections that wait and then no more, hangs up on idle ones, and on the others after
    /// their answers. With `closes_for_all` the listeners are closed in every process that has them: from
    /// then on the system refuses connections, where otherwise they would wait for nobody.
    pub fn drain(&mut self, closes_for_all: bool) {
        if let Some(worker) = &self.worker {
            worker.drain();
        }
        self.unlisten();
        for index in 0..self.listeners.len() {
            self.accept_last(index);
            if closes_for_all {
                self.listeners[index].close_for_all();
            }
        }
        self.listeners.clear();
        self.connections.is_draining = true;
        self.connections.hurry_fresh();
        self.close_idle();
    }

    /// Ends all connections at the end of a drain: who has no answer yet gets 503.
    pub fn give_up(&mut self) {
        let ids: Vec<_> = self.connections.slab.ids().collect();
        for id in ids {
            self.connections.give_up(id, &mut self.inbox);
        }
    }

    fn close_idle(&mut self) {
        let is_idle = |id: &ConnectionId| {
            let connection = self.connections.slab.get(*id);
            // One that has just come has a moment for its first request.
            connection.is_some_and(|connection| {
                connection.is_idle() && !connection.is_readable && !connection.is_fresh
            })
        };
        let idle: Vec<_> = self.connections.slab.ids().filter(is_idle).collect();
        for id in idle {
            self.connections.close(id);
        }
    }

    fn take_event(&mut self, event: Event) {
        match event.word {
            WAKER => {
                self.waker.clear();
                self.is_woken = true;
            }
            MAILBOX => self.take_messages(),
            // It is for the thread that stands in.
            BELL => {}
            word if word > FIRST_LISTENER - LISTENERS_MAX => {
                self.accept(usize::try_from(FIRST_LISTENER - word).unwrap_or(usize::MAX));
            }
            word => self.connections.note(ConnectionId::from_word(word), event),
        }
    }

    /// Begins the connections that wait at a listener, some at a time.
    fn accept(&mut self, index: usize) {
        for _ in 0..ACCEPTS_MAX {
            let coming = self.worker.as_ref().map_or(0, WorkerHandle::connections);
            let count = self.connections.slab.len().max(coming);
            if count >= self.connections.settings.connections_max {
                let crowd = format!("{count} are open, as many as may be, and the next ones wait");
                self.connections.warn("accept a connection", io::Error::other(crowd));
                return self.unlisten();
            }
            let Some(listener) = self.listeners.get(index) else { return };
            match listener.accept() {
                Ok(None) => return,
                Ok(Some((socket, peer))) => {
                    let listener = u16::try_from(index).unwrap_or(0);
                    self.place(Connection::new(socket, peer, listener, self.connections.now_ms));
                }
                // Another process has closed it for all: this one is about to be told to stop, too.
                Err(Errno::INVAL) => {
                    self.unlisten();
                    return self.listeners.clear();
                }
                Err(errno) => {
                    self.connections.warn("accept a connection", errno);
                    self.paused_until_ms = self.connections.now_ms + PAUSE_MS;
                    return self.unlisten();
                }
            }
        }
    }

    /// Begins every connection that waits at a listener, here and not in another worker.
    fn accept_last(&mut self, index: usize) {
        while self.connections.slab.len() < self.connections.settings.connections_max {
            let Ok(Some((socket, peer))) = self.listeners[index].accept() else { return };
            let listener = u16::try_from(index).unwrap_or(0);
            let connection = Connection::new(socket, peer, listener, self.connections.now_ms);
            if let Err(errno) = self.connections.open(connection) {
                return self.connections.warn("accept a connection", errno);
            }
        }
    }

    fn listen_again(&mut self) {
        if !self.is_listening && self.may_listen() {
            // Without descriptors it is tried again after the next pause.
            let _ = self.listen();
        }
    }

    fn may_listen(&self) -> bool {
        !self.connections.is_draining
            && self.connections.now_ms >= self.paused_until_ms
            && self.connections.slab.len() < self.connections.settings.connections_max
    }

    fn listen(&mut self) -> Result<(), Error> {
        for (listener, index) in self.listeners.iter().zip(0..LISTENERS_MAX) {
            self.connections
                .poller
                .add_listener(listener.as_fd(), FIRST_LISTENER - index)
                .map_err(|errno| Error::listen(listener.address(), errno))?;
        }
        self.is_listening = true;
        Ok(())
    }

    fn unlisten(&mut self) {
        for listener in &self.listeners {
            self.connections.poller.remove(listener.as_fd());
        }
        self.is_listening = false;
    }

    pub(crate) fn serve(&mut self, id: ConnectionId, handler: &mut impl Handler) {
        let Some(connection) = self.connections.slab.get(id) else { return };
        if connection.output.is_some() {
            return self.connections.flush(id);
        }
        match connection.phase {
            Phase::Waiting => self.read_head(id, handler),
            Phase::Receiving(_) => self.read_body(id, handler),
            Phase::Lingering { .. } => self.connections.drain_input(id, &mut self.inbox),
            Phase::Handling | Phase::Streaming(_) | Phase::Responding => {}
        }
    }
}

#[cfg(test)]
mod tests;
