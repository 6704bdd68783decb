//! The connections of an engine, and what can be done with each.

use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use thruway_http1::date::DATE_BYTES;
use thruway_http1::response::ResponseConstraints;
use thruway_http1::{Date, ParseError, ResponseFraming};

use crate::activity::Activity;
use crate::connection::{Connection, Payload, Phase, Received};
use crate::exchange::{Response, Ticket, text_response};
use crate::output::{Flushed, QUANTUM_BYTES};
use crate::pace::{Demand, Pace};
use crate::poller::{Event, Poller};
use crate::queue::mean_interval::MeanInterval;
use crate::queue::policy;
use crate::queue::run_queue::RunQueue;
use crate::settings::Settings;
use crate::slab::{ConnectionId, Slab};
use crate::timer_wheel::TimerWheel;
use crate::warnings::Warnings;

/// Quanta of one body in a turn, while nobody waits for anything shorter: a call costs more than its
/// bytes do. Whoever comes in meanwhile waits for less than a millisecond.
const BULK_QUANTA: usize = 8;

/// In a longer line everybody gets one quantum: it is not looked through.
const BULK_LINE_MAX: usize = 32;

/// What waits for a client is no matter for a file up to here.
const SPOOLED_BYTES_MIN: usize = 64 << 10;

/// How long a client that was hung up on may go on sending.
const LINGER_MS: u64 = 2_000;

/// How long a connection that has just come may keep a server that drains waiting for its first byte: a
/// client sends its request right after it has connected.
const DRAIN_FIRST_BYTE_MS: u64 = 500;

/// Everything about connections, but no reading of requests.
#[derive(Debug)]
pub(crate) struct Connections {
    pub(crate) poller: Poller,
    pub(crate) slab: Slab<Connection>,
    pub(crate) queue: RunQueue,
    pub(crate) timers: TimerWheel,
    pub(crate) activity: Activity,
    pub(crate) settings: Settings,
    pub(crate) warnings: Warnings,
    /// Milliseconds of the monotonic clock, as of the last look at it.
    pub(crate) now_ms: u64,
    /// The same in microseconds.
    pub(crate) now_us: u64,
    /// How long a round lasts, and how long clients rest between two requests.
    pub(crate) round: MeanInterval,
    rests: MeanInterval,
    pub(crate) is_draining: bool,
    /// Requests so far: the number of the last one.
    requests: u64,
    /// Bytes that wait in memory for clients to take them.
    pub(crate) held_bytes: usize,
    date: Date,
    unix_seconds: u64,
    /// Where heads are built; empty between two answers.
    scratch: Vec<u8>,
    /// Deadlines that have come; empty between two looks.
    due: Vec<u32>,
}

impl Connections {
    pub(crate) fn new(poller: Poller, settings: Settings) -> Self {
        let now_us = monotonic_us();
        let now_ms = now_us / 1000;
        let unix_seconds = unix_seconds();
        Self {
            poller,
            slab: Slab::new(),
            queue: RunQueue::default(),
            timers: TimerWheel::new(now_ms),
            activity: Activity::default(),
            settings,
            warnings: Warnings::default(),
            now_ms,
            now_us,
            round: MeanInterval::default(),
            rests: MeanInterval::default(),
            is_draining: false,
            requests: 0,
            held_bytes: 0,
            date: Date::new(unix_seconds),
            unix_seconds,
            scratch: Vec::new(),
            due: Vec::new(),
        }
    }

    /// Looks at the clock, and ends what has taken too long.
    pub(crate) fn tick(&mut self) {
        self.now_us = monotonic_us();
        self.now_ms = self.now_us / 1000;
        self.unix_seconds = unix_seconds();
        self.activity.advance(self.now_ms);
        let mut due = std::mem::take(&mut self.due);
        self.timers.advance(self.now_ms, &mut due);
        for slot in due.drain(..) {
            if let Some(id) = self.slab.id_at(slot) {
                self.expire(id);
            }
        }
        self.due = due;
    }

    /// Notes what cannot be done, for the log; `doing` completes "cannot …".
    pub(crate) fn warn(&mut self, doing: &'static str, source: impl Into<io::Error>) {
        self.warnings.note(self.now_ms, doing, source);
    }

    pub(crate) fn date(&mut self) -> [u8; DATE_BYTES] {
        *self.date.at(self.unix_seconds)
    }

    /// Notes what happened on a connection, and gives it its turn.
    pub(crate) fn note(&mut self, id: ConnectionId, event: Event) {
        let Some(connection) = self.slab.get_mut(id) else { return };
        connection.is_readable |= event.is_readable;
        connection.is_writable |= event.is_writable;
        connection.is_ended |= event.is_ended;
        if connection.has_work() {
            self.enqueue(id, self.now_us);
        }
    }

    /// Puts a connection in line that has had something to do since `ready_us`. One that is there keeps its slot.
    fn enqueue(&mut self, id: ConnectionId, ready_us: u64) {
        let Some(connection) = self.slab.get_mut(id) else { return };
        if self.queue.contains(id.slot()) {
            return;
        }
        let (mut interval_us, mut rest_us) = (0, 0);
        if connection.awaits_request() && connection.input.is_empty() {
            let asked_us = std::mem::replace(&mut connection.asked_us, ready_us);
            if asked_us > 0 {
                interval_us = ready_us.saturating_sub(asked_us);
                rest_us = ready_us.saturating_sub(connection.responded_us);
                self.round.note(interval_us);
                self.rests.note(rest_us.max(policy::REST_US_MIN));
            }
        }
        connection.ready_us = ready_us;
        connection.key_us =
            policy::key_us(ready_us, interval_us, rest_us, &self.round, &self.rests);
        self.queue.enqueue(id.slot(), connection.key_us);
    }

    /// Puts a connection in line as it was in another worker's.
    pub(crate) fn enqueue_moved(&mut self, id: ConnectionId) {
        if let Some(connection) = self.slab.get_mut(id) {
            connection.ready_us = self.now_us;
            self.queue.enqueue(id.slot(), connection.key_us);
        }
    }

    /// The key of the request that waits first, and since when it is ready.
    pub(crate) fn oldest(&self) -> Option<(u64, u64)> {
        let (slot, key_us) = self.queue.find_oldest(|_| true)?;
        let id = self.slab.id_at(slot)?;
        self.slab.get(id).map(|connection| (key_us, connection.ready_us))
    }

    /// Begins the turn of the connection at `slot`; none if there is nothing to do.
    pub(crate) fn begin_turn(&mut self, slot: u32) -> Option<ConnectionId> {
        let id = self.slab.id_at(slot)?;
        let connection = self.slab.get_mut(id).filter(|connection| connection.has_work())?;
        self.activity.note_turn(&mut connection.share);
        Some(id)
    }

    /// Begins a connection.
    pub(crate) fn open(&mut self, connection: Connection) -> Result<ConnectionId, Errno> {
        let share = connection.share;
        let id = self.slab.insert(connection);
        if let Some(connection) = self.slab.get(id)
            && let Err(errno) = self.poller.add_connection(&connection.socket, id.to_word())
        {
            self.slab.remove(id);
            return Err(errno);
        }
        self.activity.enter(share);
        self.set_deadline(id);
        Ok(id)
    }

    /// Ends a connection. Its socket is closed with it.
    pub(crate) fn close(&mut self, id: ConnectionId) -> Option<Connection> {
        self.queue.remove(id.slot());
        self.timers.remove(id.slot());
        let closed = self.slab.remove(id)?;
        self.activity.leave(closed.share);
        self.held_bytes -= closed.held_bytes;
        Some(closed)
    }

    /// Ends a connection in the middle of an answer.
    pub(crate) fn reset(&mut self, id: ConnectionId) {
        if let Some(connection) = self.close(id) {
            // Without it, the end of the connection could pass for the end of the body.
            let reset = Some(std::time::Duration::ZERO);
            let _ = rustix::net::sockopt::set_socket_linger(&connection.socket, reset);
        }
    }

    /// Begins a request on a connection, and gives the right to answer it. Earlier ones end.
    pub(crate) fn begin_request(&mut self, id: ConnectionId) -> Option<Ticket> {
        let connection = self.slab.get_mut(id)?;
        self.requests += 1;
        connection.request = self.requests;
        connection.phase = Phase::Handling;
        Some(Ticket { connection: id, request: self.requests })
    }

    /// The connection of a request, while the handler has it: it is neither answered nor gone.
    pub(crate) fn connection_of(&mut self, ticket: Ticket) -> Option<&mut Connection> {
        self.slab.get_mut(ticket.connection).filter(|connection| connection.is_of(ticket))
    }

    /// Sends a whole answer, or its first quantum.
    pub(crate) fn respond(&mut self, ticket: Ticket, response: Response<'_>) {
        let turn_bytes = match &response.payload {
            Payload::File { .. } | Payload::Parts(_) => self.turn_bytes(),
            Payload::Empty | Payload::Slices(_) => QUANTUM_BYTES,
        };
        let is_draining = self.is_draining;
        let Some(connection) = self.connection_of(ticket) else { return };
        if !matches!(connection.phase, Phase::Handling) {
            return;
        }
        connection.phase = Phase::Responding;
        connection.is_persistent = response.plan.is_persistent && !is_draining;
        let payload = match response.plan.framing {
            ResponseFraming::Empty => Payload::Empty,
            _ => response.payload,
        };
        let flushed = connection.deliver(response.head, payload, turn_bytes);
        self.after_flush(ticket.connection, flushed);
        self.settle(ticket.connection);
    }

    /// Sends a short answer of plain text.
    pub(crate) fn respond_text(
        &mut self,
        ticket: Ticket,
        constraints: ResponseConstraints,
        status: u16,
        text: &str,
    ) {
        let date = self.date();
        let mut out = std::mem::take(&mut self.scratch);
        let (plan, head_bytes) = text_response(&mut out, constraints, status, text, &date);
        let (head, body) = out.split_at(head_bytes);
        self.respond(ticket, Response { head, plan, payload: Payload::Slices(&[body]) });
        out.clear();
        self.scratch = out;
    }

    /// Answers a request that broke a rule, and hangs up: where it ends is in doubt.
    pub(crate) fn refuse(&mut self, id: ConnectionId, parse_error: ParseError) {
        self.hang_up_with(id, parse_error.status(), parse_error.text());
    }

    /// Answers whatever a connection is in the middle of, and hangs up.
    pub(crate) fn hang_up_with(&mut self, id: ConnectionId, status: u16, text: &str) {
        let Some(ticket) = self.begin_request(id) else { return };
        self.respond_text(ticket, ResponseConstraints::broken(), status, text);
    }

    /// A drain begins: connections that have not asked for anything yet get less time for it.
    pub(crate) fn hurry_fresh(&mut self) {
        let ids: Vec<_> = self.slab.ids().collect();
        for id in ids {
            if self.slab.get(id).is_some_and(|connection| connection.is_fresh) {
                self.set_deadline(id);
            }
        }
    }

    /// Ends a connection at the end of a drain: with 503, if it asked for something and nothing of the
    /// answer has been sent.
    pub(crate) fn give_up(&mut self, id: ConnectionId, inbox: &mut [u8]) {
        let Some(connection) = self.slab.get_mut(id) else { return };
        let has_asked = match connection.phase {
            Phase::Waiting => !connection.is_idle() || connection.has_bytes(),
            Phase::Receiving(_) | Phase::Handling => true,
            Phase::Streaming(_) | Phase::Responding | Phase::Lingering { .. } => false,
        };
        if has_asked && connection.output.is_none() {
            // Bytes that nobody has read would take the answer back from the client.
            connection.is_readable = true;
            self.hang_up_with(id, 503, "the server is stopping");
            let lingers = |connection: &Connection| {
                connection.is_readable && matches!(connection.phase, Phase::Lingering { .. })
            };
            while self.slab.get(id).is_some_and(lingers) {
                self.drain_input(id, inbox);
            }
        }
        self.close(id);
    }

    /// Sends what waits on a connection, and goes on with it when all is sent.
    pub(crate) fn flush(&mut self, id: ConnectionId) {
        let turn_bytes = self.turn_bytes();
        let Some(connection) = self.slab.get_mut(id) else { return };
        let flushed = connection.flush(turn_bytes);
        self.after_flush(id, flushed);
    }

    /// How many bytes of a body may leave in this turn: one quantum, or several in one call while all
    /// who wait are in the middle of a body themselves.
    fn turn_bytes(&self) -> usize {
        let wants_little = |slot| {
            let connection = self.slab.id_at(slot).and_then(|id| self.slab.get(id));
            connection
                .is_some_and(|connection| connection.output.is_none() && connection.has_work())
        };
        let is_long = self.queue.len() > BULK_LINE_MAX;
        if is_long || self.queue.iter().any(wants_little) {
            QUANTUM_BYTES
        } else {
            QUANTUM_BYTES * BULK_QUANTA
        }
    }

    /// Reads and throws away; closes when the client has closed, or goes on for too long.
    pub(crate) fn drain_input(&mut self, id: ConnectionId, inbox: &mut [u8]) {
        let Some(connection) = self.slab.get_mut(id) else { return };
        let received = connection.receive(inbox);
        let Phase::Lingering { bytes_left } = &mut connection.phase else { return };
        match received {
            Received::Later => {}
            Received::Bytes(length) if (length as u64) < u64::from(*bytes_left) => {
                *bytes_left -= u32::try_from(length).unwrap_or(*bytes_left);
            }
            Received::Bytes(_) | Received::Ended => {
                self.close(id);
            }
        }
    }

    /// Gives a connection its next deadline and, if it has more to do, its next turn.
    pub(crate) fn settle(&mut self, id: ConnectionId) {
        let Some(connection) = self.slab.get(id) else { return };
        if connection.has_work() {
            self.enqueue(id, monotonic_us());
        }
        self.set_deadline(id);
    }

    pub(crate) fn after_flush(&mut self, id: ConnectionId, flushed: Result<Flushed, Errno>) {
        let Some(connection) = self.slab.get_mut(id) else { return };
        match flushed {
            Err(_) => {
                self.close(id);
            }
            Ok(Flushed::Done) if matches!(connection.phase, Phase::Responding) => {
                connection.phase = Phase::Waiting;
                connection.is_fresh = false;
                connection.since_ms = self.now_ms;
                connection.responded_us = monotonic_us();
                if !connection.is_persistent {
                    self.hang_up(id);
                }
            }
            Ok(_) => {}
        }
        self.hold(id, flushed == Ok(Flushed::Blocked));
    }

    /// Counts what waits in memory for a client. What is too much there goes to a file, if the client takes
    /// nothing now, or if what waits for the others is too much without it.
    fn hold(&mut self, id: ConnectionId, is_blocked: bool) {
        let Some(connection) = self.slab.get_mut(id) else { return };
        let others = self.held_bytes - connection.held_bytes;
        let settings = &self.settings;
        let mut most = settings.worker_memory_bytes_max.saturating_sub(others);
        if matches!(connection.phase, Phase::Streaming(_)) {
            most = most.min(settings.response_memory_bytes_max);
        }
        let most = most.max(SPOOLED_BYTES_MIN);
        let is_due = is_blocked || others >= settings.worker_memory_bytes_max;
        if is_due
            && settings.response_file_bytes_max > 0
            && let Some(output) = connection.output.as_mut()
            && output.memory_bytes() > most
            && let Err(error) = output.spool(most)
        {
            self.warn("keep what a client has not taken, so that it is cut off", error);
            return self.reset(id);
        }
        connection.held_bytes = connection.memory_bytes();
        self.held_bytes = others + connection.held_bytes;
    }

    /// Closes after the last answer. While the client may still be sending, closing at once would
    /// take the answer back from it (RFC 9112, 9.6).
    fn hang_up(&mut self, id: ConnectionId) {
        let Some(connection) = self.slab.get_mut(id) else { return };
        if connection.input.is_empty() && !connection.is_readable {
            self.close(id);
        } else {
            connection.linger(self.now_ms);
        }
    }

    fn set_deadline(&mut self, id: ConnectionId) {
        let demand = self.demand();
        let Some(connection) = self.slab.get_mut(id) else { return };
        if let Some(output) = connection.output.as_mut() {
            output.pace.get_or_insert_with(|| Pace::new(self.now_ms, demand));
        }
        let Some(connection) = self.slab.get(id) else { return };
        match self.deadline_ms(connection) {
            Some(deadline_ms) => self.timers.set(id.slot(), deadline_ms),
            None => self.timers.remove(id.slot()),
        }
    }

    fn deadline_ms(&self, connection: &Connection) -> Option<u64> {
        let timeouts = &self.settings.timeouts;
        let since = connection.since_ms;
        if let Some(output) = &connection.output {
            return output.pace.as_ref().map(Pace::next_ms);
        }
        match connection.phase {
            Phase::Waiting if !connection.input.is_empty() => Some(since + timeouts.head_ms),
            Phase::Waiting if connection.is_fresh && self.is_draining => {
                Some(since + timeouts.first_byte_ms.min(DRAIN_FIRST_BYTE_MS))
            }
            Phase::Waiting if connection.is_fresh => Some(since + timeouts.first_byte_ms),
            Phase::Waiting => Some(since + timeouts.keep_alive_ms),
            Phase::Receiving(_) => Some(self.now_ms + timeouts.body_ms),
            Phase::Handling => timeouts.request_ms.map(|ms| since + ms),
            Phase::Lingering { .. } => Some(since + LINGER_MS),
            Phase::Streaming(_) | Phase::Responding => None,
        }
    }

    /// A deadline has come.
    fn expire(&mut self, id: ConnectionId) {
        let Some(connection) = self.slab.get(id) else { return };
        if connection.output.is_some() {
            return self.look_at_pace(id);
        }
        if connection.has_work() {
            // It waits for its turn, not for the client; the turn gives it the next deadline.
            return;
        }
        match connection.phase {
            Phase::Waiting if !connection.input.is_empty() => {
                self.hang_up_with(id, 408, "the head took too long");
            }
            Phase::Receiving(_) => self.hang_up_with(id, 408, "the body took too long"),
            Phase::Handling => self.hang_up_with(id, 503, "the answer took too long"),
            _ => drop(self.close(id)),
        }
    }

    /// Cuts off a client that takes too little of its answer.
    fn look_at_pace(&mut self, id: ConnectionId) {
        let demand = self.demand();
        let Some(connection) = self.slab.get_mut(id) else { return };
        let taken = connection.taken_bytes();
        let pace = connection.output.as_mut().and_then(|output| output.pace.as_mut());
        if pace.is_some_and(|pace| pace.look(self.now_ms, taken, demand)) {
            self.set_deadline(id);
        } else {
            self.reset(id);
        }
    }

    fn demand(&self) -> Demand {
        Demand {
            within_ms: self.settings.timeouts.write_ms,
            bytes_per_second_min: self.settings.write_bytes_per_second_min,
        }
    }
}

/// Microseconds of the monotonic clock, which all processes share.
#[must_use]
pub fn monotonic_us() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let us = now.tv_sec.saturating_mul(1_000_000).saturating_add(now.tv_nsec / 1_000);
    u64::try_from(us).unwrap_or(0)
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
