//! The deadline of each connection.

use crate::entry::multiplexer::Multiplexer;
use crate::entry::{Entry, State};
use crate::events::timer_wheel::TimerWheel;
use crate::output::pace::{MinimumPace, Pace};
use crate::settings::{Settings, Timeouts};

/// The time for which a client may keep sending after the server has closed the connection for writing.
const LINGER_MS: u64 = 2_000;

/// The time for which a stream may stay silent after its client has closed its sending half. Most such clients are
/// gone. A client that has closed only its sending half reads the stream to the end as long as data arrives.
const DESERTED_MS: u64 = 500;

/// The maximum time by which a fresh connection delays a drain: a client sends its first byte right after it has
/// connected.
const DRAIN_FIRST_BYTE_MS: u64 = 500;

/// If a deadline is detected this much too late, the process or its machine stalled in the meantime.
const LATE_MS: u64 = 100;

/// The deadlines of all connections.
#[derive(Debug)]
pub(crate) struct Deadlines {
    timers: TimerWheel,
    timeouts: Timeouts,
    pace_min: MinimumPace,
    /// The silence after which the server pings the client of a WebSocket; zero disables pings.
    socket_ping_ms: u64,
    /// Whether the server drains, so fresh connections get less time.
    is_draining: bool,
    /// The times of the last two searches for expired deadlines.
    looked_ms: [u64; 2],
    /// The slots whose deadlines have expired. The field only reuses the list's memory.
    due: Vec<u32>,
}

impl Deadlines {
    pub(crate) fn new(settings: &Settings, now_ms: u64) -> Self {
        let pace_min = MinimumPace {
            within_ms: settings.timeouts.write_ms,
            bytes_per_second_min: settings.write_bytes_per_second_min,
        };
        Self {
            timers: TimerWheel::new(now_ms),
            timeouts: settings.timeouts.clone(),
            pace_min,
            socket_ping_ms: settings.socket_ping_ms,
            is_draining: false,
            looked_ms: [now_ms; 2],
            due: Vec::new(),
        }
    }

    /// Gives fresh connections less time from now on.
    pub(crate) fn drain(&mut self) {
        self.is_draining = true;
    }

    /// Returns the slots whose deadlines have expired. The caller returns the list with [`keep`](Self::keep).
    pub(crate) fn take_due(&mut self, now_ms: u64) -> Vec<u32> {
        let mut due = std::mem::take(&mut self.due);
        self.looked_ms = [self.looked_ms[1], now_ms];
        self.timers.advance(now_ms, &mut due);
        due
    }

    /// Keeps the memory of a list for the next search.
    pub(crate) fn keep(&mut self, mut list: Vec<u32>) {
        list.clear();
        self.due = list;
    }

    /// Sets the deadline for the event that a connection waits for now.
    pub(crate) fn update(&mut self, slot: u32, connection: &mut Entry, now_ms: u64) {
        if let Some(output) = connection.output.as_mut() {
            output.pace.get_or_insert_with(|| Pace::new(now_ms, self.pace_min));
        }
        match self.deadline_ms(connection, now_ms) {
            Some(deadline_ms) => self.timers.set(slot, deadline_ms),
            // The previous deadline may still expire, which ends nothing. Removing the timer for each request costs
            // more.
            None if matches!(connection.state, State::Handling) => {}
            None => self.timers.remove(slot),
        }
    }

    pub(crate) fn remove(&mut self, slot: u32) {
        self.timers.remove(slot);
    }

    /// Returns the number of milliseconds until the next deadline can expire; none without deadlines.
    pub(crate) fn next_expiry_ms(&self, now_ms: u64) -> Option<u64> {
        self.timers.next_expiry_ms(now_ms)
    }

    /// Whether the process was late for a deadline that [`take_due`](Self::take_due) has just returned. Each deadline
    /// is reported as overdue only once.
    pub(crate) fn is_overdue(&self, connection: &Entry) -> bool {
        let [before_ms, now_ms] = self.looked_ms;
        let deadline_ms = self.deadline_ms(connection, now_ms);
        deadline_ms.is_some_and(|deadline| before_ms < deadline && deadline + LATE_MS <= now_ms)
    }

    /// Whether the client takes its response fast enough. `taken` counts the bytes taken so far, from an arbitrary
    /// origin.
    pub(crate) fn is_fast_enough(&self, connection: &mut Entry, now_ms: u64, taken: i64) -> bool {
        let pace = connection.output.as_mut().and_then(|output| output.pace.as_mut());
        pace.is_some_and(|pace| pace.look(now_ms, taken, self.pace_min))
    }

    fn deadline_ms(&self, connection: &Entry, now_ms: u64) -> Option<u64> {
        let timeouts = &self.timeouts;
        let since = connection.since_ms;
        if let Some(output) = &connection.output {
            return output.pace.as_ref().map(Pace::next_ms);
        }
        match connection.state {
            State::Handshaking if self.is_draining => {
                Some(since + timeouts.handshake_ms.min(DRAIN_FIRST_BYTE_MS))
            }
            State::Handshaking => Some(since + timeouts.handshake_ms),
            State::Waiting if !connection.input.bytes.is_empty() => Some(since + timeouts.head_ms),
            State::Waiting if connection.is_fresh && self.is_draining => {
                Some(since + timeouts.first_byte_ms.min(DRAIN_FIRST_BYTE_MS))
            }
            State::Waiting if connection.is_fresh => Some(since + timeouts.first_byte_ms),
            State::Waiting => Some(since + timeouts.keep_alive_ms),
            State::Receiving(_) => Some(now_ms + timeouts.body_ms),
            State::Handling => timeouts.request_ms.map(|ms| since + ms),
            State::Lingering { .. } => Some(since + LINGER_MS),
            State::Multiplexing(ref multiplexer) => self.multiplexing_ms(connection, multiplexer),
            State::Upgraded(ref upgraded) => upgraded.deadline_ms(since, self.socket_ping_ms),
            // Each written piece restarts the time limit.
            State::Streaming(_) if connection.readiness.is_ended => Some(now_ms + DESERTED_MS),
            State::AwaitingOther(_) | State::Streaming(_) | State::Responding => None,
        }
    }

    /// Returns the deadline of a connection whose streams have deadlines of their own.
    fn multiplexing_ms(&self, connection: &Entry, multiplexer: &Multiplexer) -> Option<u64> {
        let (timeouts, since) = (&self.timeouts, connection.since_ms);
        match multiplexer.head_since_ms {
            Some(since) => Some(since + timeouts.head_ms),
            None if !multiplexer.is_idle() => None,
            None if multiplexer.session.is_leaving() => Some(since + DRAIN_FIRST_BYTE_MS),
            None if connection.is_fresh => Some(since + timeouts.first_byte_ms),
            None => Some(since + timeouts.keep_alive_ms),
        }
    }
}
