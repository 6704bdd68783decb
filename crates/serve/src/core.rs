//! The connections of an engine, and what can be done with each.

use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use thruway_http1::date::DATE_BYTES;
use thruway_http1::response::Terms;
use thruway_http1::{Date, Delivery, Refusal};

use crate::activity::Activity;
use crate::connection::{Connection, Payload, Phase, Received};
use crate::exchange::{Answer, Ticket, text_answer};
use crate::output::{Flushed, QUANTUM_BYTES};
use crate::pace::{Demand, Pace};
use crate::poller::{Event, Poller};
use crate::queue::policy;
use crate::queue::round::Round;
use crate::queue::run_queue::RunQueue;
use crate::settings::Settings;
use crate::table::{Key, Table};
use crate::trouble::Troubles;
use crate::wheel::Wheel;

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
pub(crate) struct Core {
    pub(crate) poller: Poller,
    pub(crate) table: Table<Connection>,
    pub(crate) queue: RunQueue,
    pub(crate) wheel: Wheel,
    pub(crate) activity: Activity,
    pub(crate) settings: Settings,
    pub(crate) troubles: Troubles,
    /// Milliseconds of the monotonic clock, as of the last look at it.
    pub(crate) now_ms: u64,
    /// The same in microseconds.
    pub(crate) now_us: u64,
    /// How long a round lasts, and how long clients rest between two requests.
    pub(crate) round: Round,
    rests: Round,
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

impl Core {
    pub(crate) fn new(poller: Poller, settings: Settings) -> Self {
        let now_us = monotonic_us();
        let now_ms = now_us / 1000;
        let unix_seconds = unix_seconds();
        Self {
            poller,
            table: Table::new(),
            queue: RunQueue::default(),
            wheel: Wheel::new(now_ms),
            activity: Activity::default(),
            settings,
            troubles: Troubles::default(),
            now_ms,
            now_us,
            round: Round::default(),
            rests: Round::default(),
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
        self.wheel.advance(self.now_ms, &mut due);
        for place in due.drain(..) {
            if let Some(key) = self.table.key_at(place) {
                self.expire(key);
            }
        }
        self.due = due;
    }

    /// Notes what cannot be done, for the log; `doing` completes "cannot …".
    pub(crate) fn note_trouble(&mut self, doing: &'static str, source: impl Into<io::Error>) {
        self.troubles.note(self.now_ms, doing, source);
    }

    pub(crate) fn date(&mut self) -> [u8; DATE_BYTES] {
        *self.date.at(self.unix_seconds)
    }

    /// Notes what happened on a connection, and gives it its turn.
    pub(crate) fn note(&mut self, key: Key, event: Event) {
        let Some(connection) = self.table.get_mut(key) else { return };
        connection.is_readable |= event.is_readable;
        connection.is_writable |= event.is_writable;
        connection.is_ended |= event.is_ended;
        if connection.has_work() {
            self.enqueue(key, self.now_us);
        }
    }

    /// Puts a connection in line that has had something to do since `ready_us`. One that is there keeps its place.
    fn enqueue(&mut self, key: Key, ready_us: u64) {
        let Some(connection) = self.table.get_mut(key) else { return };
        if self.queue.contains(key.place()) {
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
        self.queue.enqueue(key.place(), connection.key_us);
    }

    /// Puts a connection in line as it was in another worker's.
    pub(crate) fn enqueue_moved(&mut self, key: Key) {
        if let Some(connection) = self.table.get_mut(key) {
            connection.ready_us = self.now_us;
            self.queue.enqueue(key.place(), connection.key_us);
        }
    }

    /// The key of the request that waits first, and since when it is ready.
    pub(crate) fn oldest(&self) -> Option<(u64, u64)> {
        let (place, key_us) = self.queue.find_oldest(|_| true)?;
        let key = self.table.key_at(place)?;
        self.table.get(key).map(|connection| (key_us, connection.ready_us))
    }

    /// Begins the turn of the connection at `place`; none if there is nothing to do.
    pub(crate) fn begin_turn(&mut self, place: u32) -> Option<Key> {
        let key = self.table.key_at(place)?;
        let connection = self.table.get_mut(key).filter(|connection| connection.has_work())?;
        self.activity.note_turn(&mut connection.share);
        Some(key)
    }

    /// Begins a connection.
    pub(crate) fn open(&mut self, connection: Connection) -> Result<Key, Errno> {
        let share = connection.share;
        let key = self.table.insert(connection);
        if let Some(connection) = self.table.get(key)
            && let Err(errno) = self.poller.add_connection(&connection.socket, key.to_word())
        {
            self.table.remove(key);
            return Err(errno);
        }
        self.activity.enter(share);
        self.set_deadline(key);
        Ok(key)
    }

    /// Ends a connection. Its socket is closed with it.
    pub(crate) fn close(&mut self, key: Key) -> Option<Connection> {
        self.queue.remove(key.place());
        self.wheel.remove(key.place());
        let closed = self.table.remove(key)?;
        self.activity.leave(closed.share);
        self.held_bytes -= closed.held_bytes;
        Some(closed)
    }

    /// Ends a connection in the middle of an answer.
    pub(crate) fn reset(&mut self, key: Key) {
        if let Some(connection) = self.close(key) {
            // Without it, the end of the connection could pass for the end of the body.
            let reset = Some(std::time::Duration::ZERO);
            let _ = rustix::net::sockopt::set_socket_linger(&connection.socket, reset);
        }
    }

    /// Begins a request on a connection, and gives the right to answer it. Earlier ones end.
    pub(crate) fn begin_request(&mut self, key: Key) -> Option<Ticket> {
        let connection = self.table.get_mut(key)?;
        self.requests += 1;
        connection.request = self.requests;
        connection.phase = Phase::Handling;
        Some(Ticket { key, request: self.requests })
    }

    /// The connection of a request, while the handler has it: it is neither answered nor gone.
    pub(crate) fn connection_of(&mut self, ticket: Ticket) -> Option<&mut Connection> {
        self.table.get_mut(ticket.key).filter(|connection| connection.is_of(ticket))
    }

    /// Sends a whole answer, or its first quantum.
    pub(crate) fn answer(&mut self, ticket: Ticket, answer: Answer<'_>) {
        let turn_bytes = match &answer.payload {
            Payload::File { .. } | Payload::Parts(_) => self.turn_bytes(),
            Payload::Empty | Payload::Slices(_) => QUANTUM_BYTES,
        };
        let is_draining = self.is_draining;
        let Some(connection) = self.connection_of(ticket) else { return };
        if !matches!(connection.phase, Phase::Handling) {
            return;
        }
        connection.phase = Phase::Answering;
        connection.is_persistent = answer.promise.is_persistent && !is_draining;
        let payload = match answer.promise.delivery {
            Delivery::Empty => Payload::Empty,
            _ => answer.payload,
        };
        let flushed = connection.deliver(answer.head, payload, turn_bytes);
        self.after_flush(ticket.key, flushed);
        self.settle(ticket.key);
    }

    /// Sends a short answer of plain text.
    pub(crate) fn answer_text(&mut self, ticket: Ticket, terms: Terms, status: u16, text: &str) {
        let date = self.date();
        let mut out = std::mem::take(&mut self.scratch);
        let (promise, head_bytes) = text_answer(&mut out, terms, status, text, &date);
        let (head, body) = out.split_at(head_bytes);
        self.answer(ticket, Answer { head, promise, payload: Payload::Slices(&[body]) });
        out.clear();
        self.scratch = out;
    }

    /// Answers a request that broke a rule, and hangs up: where it ends is in doubt.
    pub(crate) fn refuse(&mut self, key: Key, refusal: Refusal) {
        self.hang_up_with(key, refusal.status(), refusal.text());
    }

    /// Answers whatever a connection is in the middle of, and hangs up.
    pub(crate) fn hang_up_with(&mut self, key: Key, status: u16, text: &str) {
        let Some(ticket) = self.begin_request(key) else { return };
        self.answer_text(ticket, Terms::broken(), status, text);
    }

    /// A drain begins: connections that have not asked for anything yet get less time for it.
    pub(crate) fn hurry_fresh(&mut self) {
        let keys: Vec<_> = self.table.keys().collect();
        for key in keys {
            if self.table.get(key).is_some_and(|connection| connection.is_fresh) {
                self.set_deadline(key);
            }
        }
    }

    /// Ends a connection at the end of a drain: with 503, if it asked for something and nothing of the
    /// answer has been sent.
    pub(crate) fn give_up(&mut self, key: Key, inbox: &mut [u8]) {
        let Some(connection) = self.table.get_mut(key) else { return };
        let has_asked = match connection.phase {
            Phase::Waiting => !connection.is_idle() || connection.has_bytes(),
            Phase::Receiving(_) | Phase::Handling => true,
            Phase::Streaming(_) | Phase::Answering | Phase::Lingering { .. } => false,
        };
        if has_asked && connection.output.is_none() {
            // Bytes that nobody has read would take the answer back from the client.
            connection.is_readable = true;
            self.hang_up_with(key, 503, "the server is stopping");
            let lingers = |connection: &Connection| {
                connection.is_readable && matches!(connection.phase, Phase::Lingering { .. })
            };
            while self.table.get(key).is_some_and(lingers) {
                self.drain_input(key, inbox);
            }
        }
        self.close(key);
    }

    /// Sends what waits on a connection, and goes on with it when all is sent.
    pub(crate) fn flush(&mut self, key: Key) {
        let turn_bytes = self.turn_bytes();
        let Some(connection) = self.table.get_mut(key) else { return };
        let flushed = connection.flush(turn_bytes);
        self.after_flush(key, flushed);
    }

    /// How many bytes of a body may leave in this turn: one quantum, or several in one call while all
    /// who wait are in the middle of a body themselves.
    fn turn_bytes(&self) -> usize {
        let wants_little = |place| {
            let connection = self.table.key_at(place).and_then(|key| self.table.get(key));
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
    pub(crate) fn drain_input(&mut self, key: Key, inbox: &mut [u8]) {
        let Some(connection) = self.table.get_mut(key) else { return };
        let received = connection.receive(inbox);
        let Phase::Lingering { bytes_left } = &mut connection.phase else { return };
        match received {
            Received::Later => {}
            Received::Bytes(length) if (length as u64) < u64::from(*bytes_left) => {
                *bytes_left -= u32::try_from(length).unwrap_or(*bytes_left);
            }
            Received::Bytes(_) | Received::Ended => {
                self.close(key);
            }
        }
    }

    /// Gives a connection its next deadline and, if it has more to do, its next turn.
    pub(crate) fn settle(&mut self, key: Key) {
        let Some(connection) = self.table.get(key) else { return };
        if connection.has_work() {
            self.enqueue(key, monotonic_us());
        }
        self.set_deadline(key);
    }

    pub(crate) fn after_flush(&mut self, key: Key, flushed: Result<Flushed, Errno>) {
        let Some(connection) = self.table.get_mut(key) else { return };
        match flushed {
            Err(_) => {
                self.close(key);
            }
            Ok(Flushed::Done) if matches!(connection.phase, Phase::Answering) => {
                connection.phase = Phase::Waiting;
                connection.is_fresh = false;
                connection.since_ms = self.now_ms;
                connection.responded_us = monotonic_us();
                if !connection.is_persistent {
                    self.hang_up(key);
                }
            }
            Ok(_) => {}
        }
        self.hold(key, flushed == Ok(Flushed::Blocked));
    }

    /// Counts what waits in memory for a client. What is too much there goes to a file, if the client takes
    /// nothing now, or if what waits for the others is too much without it.
    fn hold(&mut self, key: Key, is_blocked: bool) {
        let Some(connection) = self.table.get_mut(key) else { return };
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
            self.note_trouble("keep what a client has not taken, so that it is cut off", error);
            return self.reset(key);
        }
        connection.held_bytes = connection.memory_bytes();
        self.held_bytes = others + connection.held_bytes;
    }

    /// Closes after the last answer. While the client may still be sending, closing at once would
    /// take the answer back from it (RFC 9112, 9.6).
    fn hang_up(&mut self, key: Key) {
        let Some(connection) = self.table.get_mut(key) else { return };
        if connection.input.is_empty() && !connection.is_readable {
            self.close(key);
        } else {
            connection.linger(self.now_ms);
        }
    }

    fn set_deadline(&mut self, key: Key) {
        let demand = self.demand();
        let Some(connection) = self.table.get_mut(key) else { return };
        if let Some(output) = connection.output.as_mut() {
            output.pace.get_or_insert_with(|| Pace::new(self.now_ms, demand));
        }
        let Some(connection) = self.table.get(key) else { return };
        match self.deadline_ms(connection) {
            Some(deadline_ms) => self.wheel.set(key.place(), deadline_ms),
            None => self.wheel.remove(key.place()),
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
            Phase::Streaming(_) | Phase::Answering => None,
        }
    }

    /// A deadline has come.
    fn expire(&mut self, key: Key) {
        let Some(connection) = self.table.get(key) else { return };
        if connection.output.is_some() {
            return self.look_at_pace(key);
        }
        if connection.has_work() {
            // It waits for its turn, not for the client; the turn gives it the next deadline.
            return;
        }
        match connection.phase {
            Phase::Waiting if !connection.input.is_empty() => {
                self.hang_up_with(key, 408, "the head took too long");
            }
            Phase::Receiving(_) => self.hang_up_with(key, 408, "the body took too long"),
            Phase::Handling => self.hang_up_with(key, 503, "the answer took too long"),
            _ => drop(self.close(key)),
        }
    }

    /// Cuts off a client that takes too little of its answer.
    fn look_at_pace(&mut self, key: Key) {
        let demand = self.demand();
        let Some(connection) = self.table.get_mut(key) else { return };
        let taken = connection.taken_bytes();
        let pace = connection.output.as_mut().and_then(|output| output.pace.as_mut());
        if pace.is_some_and(|pace| pace.look(self.now_ms, taken, demand)) {
            self.set_deadline(key);
        } else {
            self.reset(key);
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
