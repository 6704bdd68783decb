//! The engine: one thread's connections, driven by whoever owns it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use thruway_http1::date::DATE_BYTES;
use thruway_http1::response::Terms;
use thruway_http1::{BodyDecoder, Framing, Head, Piece, Promise, Refusal};

use crate::Error;
use crate::connection::{Connection, Phase, Received};
use crate::core::{Core, monotonic_us};
use crate::exchange::{Answer, Exchange, Handler, Ticket};
use crate::listener::Listener;
use crate::poller::{Event, Events, Poller, Waiter, Waker};
use crate::settings::Settings;
use crate::stream::Written;
use crate::table::Key;
use crate::upload::{Body, Spool, Upload};

/// Bytes read at once. A head that has come whole is understood where it was read.
const INBOX_BYTES: usize = 64 << 10;

/// Connections accepted before the others get their turns again.
const ACCEPTS_MAX: usize = 64;

/// How long no connection is accepted after the system has refused one for lack of something.
const PAUSE_MS: u64 = 100;

/// Short turns between two looks at what has happened.
const TURNS_PER_GLANCE: u32 = 32;

/// Time between two looks at what has happened, whatever the turns.
const GLANCE_US: u64 = 500;

/// Words that are no keys: those of the waker and, counted down from there, of the listeners.
const WAKER: u64 = u64::MAX;
const LISTENERS_MAX: u64 = 1 << 12;

/// Serves connections, a turn at a time.
///
/// A turn is one request, or one quantum of a body. The owner calls [`poll`](Self::poll) to learn what
/// has happened, and [`turn`](Self::turn) until it says that there is nothing left to do.
#[derive(Debug)]
pub struct Engine {
    core: Core,
    listeners: Vec<Listener>,
    is_listening: bool,
    paused_until_ms: u64,
    waiter: Waiter,
    waker: Waker,
    inbox: Vec<u8>,
    head: Head,
    turns_since_look: u32,
    look_at_us: u64,
}

impl Engine {
    /// An engine for connections from `listeners`.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn new(settings: Settings, listeners: Vec<Listener>) -> Result<Self, Error> {
        let poller = Poller::new()?;
        let waiter = poller.waiter();
        let waker = poller.waker(WAKER)?;
        let mut engine = Self {
            core: Core::new(poller, settings),
            listeners,
            is_listening: false,
            paused_until_ms: 0,
            waiter,
            waker,
            inbox: vec![0; INBOX_BYTES],
            head: Head::new(),
            turns_since_look: 0,
            look_at_us: 0,
        };
        engine.listen()?;
        Ok(engine)
    }

    /// Learns what has happened. With nothing to do it waits for that, `timeout_ms` at most (none:
    /// until something happens, or a signal comes).
    pub fn poll(&mut self, events: &mut Events, timeout_ms: Option<u64>) {
        let timeout_ms =
            if self.core.rotation.len() > 0 { Some(0) } else { self.wait_ms(timeout_ms) };
        self.waiter.wait(events, timeout_ms);
        self.take(events);
        self.turns_since_look = 0;
        self.look_at_us = monotonic_us() + GLANCE_US;
    }

    /// Learns what has happened meanwhile, now and then: for between two turns.
    ///
    /// With many short turns it is a look every [`TURNS_PER_GLANCE`] of them, so that the look itself
    /// costs little; with long ones, every turn, so that whoever arrives is served next.
    pub fn glance(&mut self, events: &mut Events) {
        self.turns_since_look += 1;
        if self.turns_since_look >= TURNS_PER_GLANCE || monotonic_us() >= self.look_at_us {
            self.poll(events, Some(0));
        }
    }

    /// Serves the next connection in line; false if there is nothing to do.
    pub fn turn(&mut self, handler: &mut impl Handler) -> bool {
        while let Some(place) = self.core.rotation.next() {
            let Some(key) = self.core.table.key_at(place) else { continue };
            if self.core.table.get(key).is_some_and(Connection::has_work) {
                self.serve(key, handler);
                self.core.settle(key);
                return true;
            }
        }
        false
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

    /// How long a wait may last, if nothing is to be late: `timeout_ms` at most.
    #[must_use]
    pub fn wait_ms(&self, timeout_ms: Option<u64>) -> Option<u64> {
        let quiet = self.core.wheel.quiet_ms(self.core.now_ms);
        let pause = (self.paused_until_ms > self.core.now_ms).then_some(PAUSE_MS);
        [timeout_ms, quiet, pause].into_iter().flatten().min()
    }

    /// Takes in what a wait has brought.
    pub fn take(&mut self, events: &mut Events) {
        self.core.tick();
        for event in events.drain() {
            self.take_event(event);
        }
        if !self.is_listening && self.may_listen() {
            // Without descriptors it is tried again after the next pause.
            let _ = self.listen();
        }
    }

    /// The date for an answer.
    pub fn date(&mut self) -> [u8; DATE_BYTES] {
        self.core.date()
    }

    /// The socket of a request's connection, to wait until it takes bytes.
    #[must_use]
    pub fn socket(&self, ticket: Ticket) -> Option<BorrowedFd<'_>> {
        self.core.table.get(ticket.key).map(|connection| connection.socket.as_fd())
    }

    /// Whether a request's connection wants a turn, such as for the next request.
    #[must_use]
    pub fn has_work(&self, ticket: Ticket) -> bool {
        self.core.table.get(ticket.key).is_some_and(Connection::has_work)
    }

    /// Answers a request for which a ticket was taken. If the client is gone, so is the answer.
    pub fn answer(&mut self, ticket: Ticket, answer: Answer<'_>) {
        self.core.answer(ticket, answer);
    }

    /// Starts an answer whose body comes in pieces. Its head waits for the first piece, or for
    /// [`flush`](Self::flush).
    pub fn begin(&mut self, ticket: Ticket, head: &[u8], promise: Promise) -> Written {
        self.core.begin(ticket, head, promise)
    }

    /// Sends a piece of the body, or keeps what the client does not take now. Bytes beyond the
    /// length that was promised are dropped.
    pub fn write(&mut self, ticket: Ticket, piece: &[u8]) -> Written {
        self.core.write(ticket, piece)
    }

    /// Sends what waits, as far as the client takes it.
    pub fn flush(&mut self, ticket: Ticket) -> Written {
        self.core.flush_stream(ticket)
    }

    /// Ends a body that came in pieces. One that is shorter than was promised ends the connection.
    pub fn finish(&mut self, ticket: Ticket) {
        self.core.finish(ticket);
    }

    /// Ends the connection in the middle of an answer, so that the client cannot take it for whole.
    pub fn abort(&mut self, ticket: Ticket) {
        self.core.abort(ticket);
    }

    /// Gives the connection away, with the bytes that were read from it and not understood; none if
    /// the client is gone or has not yet taken what was written.
    pub fn detach(&mut self, ticket: Ticket) -> Option<(OwnedFd, Vec<u8>)> {
        self.core.detach(ticket)
    }

    /// Open connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.core.table.len()
    }

    /// Stops listening, hangs up on idle connections, and on the others after their answers.
    pub fn drain(&mut self) {
        self.core.is_draining = true;
        self.unlisten();
        let idle =
            |key: &Key| self.core.table.get(*key).is_some_and(|c| c.is_idle() && !c.is_readable);
        let idle: Vec<_> = self.core.table.keys().filter(idle).collect();
        for key in idle {
            self.core.close(key);
        }
    }

    fn take_event(&mut self, event: Event) {
        let from_waker = WAKER - event.word;
        if from_waker == 0 {
            self.waker.clear();
        } else if from_waker <= LISTENERS_MAX {
            self.accept(usize::try_from(from_waker - 1).unwrap_or(usize::MAX));
        } else {
            self.core.note(Key::from_word(event.word), event);
        }
    }

    /// Begins the connections that wait at a listener, some at a time.
    fn accept(&mut self, place: usize) {
        for _ in 0..ACCEPTS_MAX {
            if self.core.table.len() >= self.core.settings.connections_max {
                return self.unlisten();
            }
            let Some(listener) = self.listeners.get(place) else { return };
            match listener.accept() {
                Ok(None) => return,
                Ok(Some((socket, peer))) => {
                    let listener = u16::try_from(place).unwrap_or(0);
                    let now_ms = self.core.now_ms;
                    // A connection that cannot be watched is closed again.
                    let _ = self.core.open(Connection::new(socket, peer, listener, now_ms));
                }
                Err(_) => {
                    self.paused_until_ms = self.core.now_ms + PAUSE_MS;
                    return self.unlisten();
                }
            }
        }
    }

    fn may_listen(&self) -> bool {
        !self.core.is_draining
            && self.core.now_ms >= self.paused_until_ms
            && self.core.table.len() < self.core.settings.connections_max
    }

    fn listen(&mut self) -> Result<(), Error> {
        for (listener, place) in self.listeners.iter().zip(1..LISTENERS_MAX) {
            self.core
                .poller
                .add_listener(listener.as_fd(), WAKER - place)
                .map_err(|errno| Error::listen(listener.address(), errno))?;
        }
        self.is_listening = true;
        Ok(())
    }

    fn unlisten(&mut self) {
        for listener in &self.listeners {
            self.core.poller.remove(listener.as_fd());
        }
        self.is_listening = false;
    }

    fn serve(&mut self, key: Key, handler: &mut impl Handler) {
        let Some(connection) = self.core.table.get(key) else { return };
        if connection.output.is_some() {
            return self.core.flush(key);
        }
        match connection.phase {
            Phase::Waiting => self.read_head(key, handler),
            Phase::Receiving(_) => self.read_body(key, handler),
            Phase::Lingering { .. } => self.core.drain_input(key, &mut self.inbox),
            Phase::Handling | Phase::Streaming(_) | Phase::Answering => {}
        }
    }

    /// Reads a head, or a piece of one, and goes on with the request when it is whole.
    fn read_head(&mut self, key: Key, handler: &mut impl Handler) {
        let Some(connection) = self.core.table.get_mut(key) else { return };
        let mut own = std::mem::take(&mut connection.input);
        let seen = connection.seen;
        if own.is_empty() {
            connection.since_ms = self.core.now_ms;
        }
        let bytes = if seen < own.len() {
            &own[..]
        } else {
            match connection.receive(&mut self.inbox) {
                Received::Bytes(length) if own.is_empty() => &self.inbox[..length],
                Received::Bytes(length) => {
                    own.extend_from_slice(&self.inbox[..length]);
                    &own[..]
                }
                Received::Later => return connection.input = own,
                Received::Ended => return drop(self.core.close(key)),
            }
        };
        match self.head.parse(bytes, seen, &self.core.settings.limits) {
            Ok(false) => connection.keep(bytes, bytes.len()),
            Err(refusal) => self.core.refuse(key, refusal),
            Ok(true) => begin(&mut self.core, key, &self.head, bytes, handler),
        }
        self.read_what_came_with_the_head(key, handler);
    }

    /// A body's first bytes often come in one packet with the head.
    fn read_what_came_with_the_head(&mut self, key: Key, handler: &mut impl Handler) {
        let connection = self.core.table.get(key);
        let is_waiting = |connection: &Connection| {
            matches!(connection.phase, Phase::Receiving(_)) && connection.has_work()
        };
        if connection.is_some_and(is_waiting) {
            self.read_body(key, handler);
        }
    }

    /// Reads a piece of a body, and hands the request on when it is whole.
    fn read_body(&mut self, key: Key, handler: &mut impl Handler) {
        let Some(connection) = self.core.table.get_mut(key) else { return };
        let own = std::mem::take(&mut connection.input);
        let bytes = if own.is_empty() {
            match connection.receive(&mut self.inbox) {
                Received::Bytes(length) => &self.inbox[..length],
                Received::Later => return,
                Received::Ended => return drop(self.core.close(key)),
            }
        } else {
            &own[..]
        };
        let Phase::Receiving(upload) = &mut connection.phase else { return };
        match upload.take(bytes, &self.core.settings.limits) {
            Err(Trouble::Refused(refusal)) => self.core.refuse(key, refusal),
            Err(Trouble::Disk) => {
                self.core.hang_up_with(key, 507, "the body cannot be kept");
            }
            Ok(None) => {}
            Ok(Some(used)) => {
                connection.keep(&bytes[used..], 0);
                finish_upload(&mut self.core, key, handler);
            }
        }
    }
}

/// Why a body was not taken.
enum Trouble {
    Refused(Refusal),
    Disk,
}

impl Upload {
    /// Takes bytes of the body; how many of them belong to it, once it is whole.
    fn take(
        &mut self,
        bytes: &[u8],
        limits: &thruway_http1::Limits,
    ) -> Result<Option<usize>, Trouble> {
        let mut at = 0;
        loop {
            let (used, piece) =
                self.decoder.next(&bytes[at..], limits).map_err(Trouble::Refused)?;
            at += used;
            match piece {
                Piece::Data(data) => self.spool.write(data).map_err(|_| Trouble::Disk)?,
                Piece::More => return Ok(None),
                Piece::End => return Ok(Some(at)),
            }
        }
    }
}

/// Goes on with a request whose head is whole: to its handler, or to its body first.
fn begin(core: &mut Core, key: Key, head: &Head, bytes: &[u8], handler: &mut impl Handler) {
    let (head_bytes, rest) = bytes.split_at(head.length_bytes());
    let request = head.request(head_bytes);
    let decoder = match BodyDecoder::new(request.framing(), &core.settings.limits) {
        Ok(decoder) => decoder,
        Err(refusal) => return core.refuse(key, refusal),
    };
    let Some(connection) = core.table.get_mut(key) else { return };
    connection.keep(rest, 0);
    if matches!(request.framing(), Framing::None | Framing::Length(0)) {
        return hand_over(core, key, &request, Body::empty(), handler);
    }
    let spool = if handler.wants_body() {
        Spool::keep(core.settings.body_memory_bytes_max)
    } else {
        Spool::Discard
    };
    let upload = Upload { head: head.clone(), head_bytes: head_bytes.to_vec(), decoder, spool };
    connection.phase = Phase::Receiving(Box::new(upload));
    if request.expects_continue() && rest.is_empty() {
        let go_on = connection.deliver(b"HTTP/1.1 100 Continue\r\n\r\n", crate::Payload::Empty);
        core.after_flush(key, go_on);
    }
}

/// Hands a request to its handler when its body is whole.
fn finish_upload(core: &mut Core, key: Key, handler: &mut impl Handler) {
    let Some(connection) = core.table.get_mut(key) else { return };
    let Phase::Receiving(upload) = std::mem::replace(&mut connection.phase, Phase::Waiting) else {
        return;
    };
    let Upload { head, head_bytes, spool, .. } = *upload;
    match spool.finish() {
        Ok(body) => hand_over(core, key, &head.request(&head_bytes), body, handler),
        Err(_) => core.hang_up_with(key, 507, "the body cannot be kept"),
    }
}

fn hand_over(
    core: &mut Core,
    key: Key,
    request: &thruway_http1::Request<'_>,
    body: Body,
    handler: &mut impl Handler,
) {
    let mut terms = Terms::of(request);
    terms.is_persistent &= !core.is_draining;
    let now_ms = core.now_ms;
    let Some(connection) = core.table.get_mut(key) else { return };
    connection.phase = Phase::Handling;
    connection.since_ms = now_ms;
    let (peer, listener) = (connection.peer, connection.listener);
    let ticket = Ticket { key };
    let mut exchange = Exchange { core, ticket, terms, peer, listener, body, is_taken: false };
    handler.handle(request, &mut exchange);
    if !exchange.is_taken {
        exchange.answer_text(500, "nobody answered");
    }
}

#[cfg(test)]
mod tests;
