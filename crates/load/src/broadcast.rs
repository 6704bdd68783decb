//! Broadcasts: messages that every client should receive.

use std::collections::VecDeque;

use crate::Histogram;
use crate::plan::Class;
use crate::schedule::Schedule;

/// The placeholder in a message for the number of its broadcast.
pub(crate) const PLACE: &str = "{id}";
/// The number of digits with which the number of a broadcast is written.
const DIGITS: usize = 16;
/// The most broadcasts of an open loop that may be under way. Further ones wait, and count as late.
const OPEN_MAX: usize = 1024;

/// A mark that distinguishes the messages of this run from others.
#[derive(Debug, Clone)]
pub(crate) struct Marker {
    prefix: String,
}

impl Marker {
    pub(crate) fn new(run: u32) -> Self {
        Self { prefix: format!("load-{run:08x}-") }
    }

    /// Returns the message with the number of its broadcast.
    pub(crate) fn mark(&self, message: &[u8], number: u64) -> Vec<u8> {
        let mark = format!("{}{number:0DIGITS$}", self.prefix);
        let place = message.windows(PLACE.len()).position(|part| part == PLACE.as_bytes());
        let (before, after) = match place {
            Some(place) => (&message[..place], &message[place + PLACE.len()..]),
            None => (message, &[][..]),
        };
        [before, mark.as_bytes(), after].concat()
    }

    /// Returns the number of the broadcast in a message of this run.
    pub(crate) fn number_in(&self, message: &[u8]) -> Option<u64> {
        let prefix = self.prefix.as_bytes();
        let at = message.windows(prefix.len()).position(|part| part == prefix)?;
        let digits = message[at + prefix.len()..].get(..DIGITS)?;
        std::str::from_utf8(digits).ok()?.parse().ok()
    }
}

/// A broadcast that some clients have not received yet.
#[derive(Debug)]
struct OpenBroadcast {
    due_ns: u64,
    left: usize,
    /// Whether no client has lost the broadcast.
    is_whole: bool,
}

/// All broadcasts of a run.
#[derive(Debug)]
pub(crate) struct Broadcasts {
    /// The number of clients that receive broadcasts at the moment.
    pub(crate) subscribed: usize,
    clients: usize,
    schedule: Schedule,
    depth: usize,
    last_ns: u64,
    /// When every client was subscribed for the first time, which is the start of the schedule.
    start_ns: Option<u64>,
    /// Broadcasts under way. The first of them has the number `first`.
    open: VecDeque<OpenBroadcast>,
    first: u64,
    /// The number of broadcasts that every client received, and their latency.
    pub(crate) whole: u64,
    pub(crate) latency: Histogram,
}

impl Broadcasts {
    /// Creates the broadcasts of a class, each to this number of clients.
    pub(crate) fn new(class: &Class, clients: usize) -> Self {
        let one = Class { connections: 1, ..*class };
        let schedule = one.schedule(0, std::time::Duration::ZERO);
        let is_closed = matches!(schedule, Schedule::Always);
        Self {
            subscribed: 0,
            clients,
            depth: if is_closed { class.depth() } else { OPEN_MAX },
            schedule,
            last_ns: 0,
            start_ns: None,
            open: VecDeque::new(),
            first: 0,
            whole: 0,
            latency: Histogram::default(),
        }
    }

    /// Returns the number of broadcasts sent.
    pub(crate) fn sent(&self) -> u64 {
        self.first + self.open.len() as u64
    }

    /// Returns when the next broadcast is due; `None` if none may be sent now.
    pub(crate) fn due_ns(&mut self, now_ns: u64) -> Option<u64> {
        if self.subscribed < self.clients || self.open.len() >= self.depth {
            return None;
        }
        let start_ns = *self.start_ns.get_or_insert(now_ns);
        let last_ns = self.last_ns.saturating_sub(start_ns);
        let due_ns = self.schedule.due_ns(self.sent(), last_ns, now_ns - start_ns)?;
        Some(start_ns + due_ns)
    }

    /// Starts a broadcast. Returns its number.
    pub(crate) fn begin(&mut self, due_ns: u64) -> u64 {
        let number = self.sent();
        self.open.push_back(OpenBroadcast { due_ns, left: self.clients, is_whole: true });
        self.schedule.advance();
        number
    }

    /// Records that a client has received the broadcast, or cannot receive it any more.
    pub(crate) fn end(&mut self, number: u64, is_delivered: bool, now_ns: u64) {
        let place = number.checked_sub(self.first).and_then(|place| usize::try_from(place).ok());
        let Some(round) = place.and_then(|place| self.open.get_mut(place)) else { return };
        round.left -= 1;
        round.is_whole &= is_delivered;
        if round.left == 0 && round.is_whole {
            self.whole += 1;
            self.latency.record(now_ns.saturating_sub(round.due_ns));
            self.last_ns = now_ns;
        }
        while self.open.front().is_some_and(|round| round.left == 0) {
            self.open.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClientKind;

    #[test]
    fn a_message_is_known_by_its_number_in_whatever_it_is_wrapped() {
        let marker = Marker::new(0xbeef);
        let message = marker.mark(br#"{"text":"{id}!"}"#, 42);
        assert_eq!(message, br#"{"text":"load-0000beef-0000000000000042!"}"#);
        assert_eq!(marker.number_in(&[b"before ", &message[..]].concat()), Some(42));
        assert_eq!(Marker::new(1).number_in(&message), None);
        assert_eq!(marker.number_in(b"load-0000beef-42"), None);
    }

    #[test]
    fn the_next_begins_when_every_client_has_the_last_one() {
        let mut broadcasts = Broadcasts::new(&Class::new(ClientKind::Greedy, 2), 2);
        assert_eq!(broadcasts.due_ns(5), None);
        broadcasts.subscribed = 2;
        assert_eq!(broadcasts.due_ns(5), Some(5));
        let number = broadcasts.begin(5);
        broadcasts.end(number, true, 8);
        assert_eq!(broadcasts.due_ns(8), None);
        broadcasts.end(number, true, 9);
        assert_eq!((broadcasts.due_ns(9), broadcasts.whole), (Some(9), 1));
        assert_eq!(broadcasts.latency.largest(), 4);
    }

    #[test]
    fn a_rate_counts_from_when_every_client_is_subscribed() {
        let kind = ClientKind::Scheduled { rate: 1e9, arrivals: crate::Arrivals::Even };
        let mut broadcasts = Broadcasts::new(&Class::new(kind, 2), 2);
        assert_eq!(broadcasts.due_ns(700), None);
        broadcasts.subscribed = 2;
        assert_eq!(broadcasts.due_ns(800), Some(800));
        broadcasts.begin(800);
        assert_eq!(broadcasts.due_ns(800), Some(801));
    }

    #[test]
    fn a_broadcast_that_a_client_lost_is_not_whole() {
        let mut broadcasts = Broadcasts::new(&Class::new(ClientKind::Greedy, 2), 2);
        let number = broadcasts.begin(0);
        broadcasts.end(number, false, 1);
        broadcasts.end(number, true, 2);
        assert_eq!((broadcasts.whole, broadcasts.sent(), broadcasts.open.len()), (0, 1, 0));
    }
}
