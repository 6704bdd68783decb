//! The order in which a worker's connections get their turns.

use crate::entry::Entry;
use crate::queue::client_queue::ClientQueues;
use crate::queue::mean_interval::MeanInterval;
use crate::queue::policy;
use crate::queue::queue_position::QueuePosition;
use crate::queue::run_queue::RunQueue;
use crate::queue::waits::{Wait, Waits};

/// The run queue, and the values from which its keys are computed.
#[derive(Debug)]
pub(crate) struct Turns {
    queue: RunQueue,
    /// The mean duration of a round.
    round: MeanInterval,
    /// The mean pause of a client between two requests.
    pauses: MeanInterval,
    /// The waiting requests of each client, if clients take turns, and of each HTTP/2 connection.
    pub(crate) clients: ClientQueues,
    /// Whether clients take turns, rather than connections.
    pub(crate) by_client: bool,
    /// The waits of requests, if the waiting time is limited.
    pub(crate) waits: Option<Waits>,
}

impl Turns {
    /// Creates an empty queue. If `by_client` is set, clients take turns rather than connections. `waits` is present if
    /// the waiting time of requests is limited.
    pub(crate) fn new(clients: ClientQueues, by_client: bool, waits: Option<Waits>) -> Self {
        Self {
            queue: RunQueue::default(),
            round: MeanInterval::default(),
            pauses: MeanInterval::default(),
            clients,
            by_client,
            waits,
        }
    }

    /// Enqueues a connection that has had work since `ready_us`. A connection that already waits keeps its key.
    pub(crate) fn enqueue(&mut self, slot: u32, connection: &mut Entry, ready_us: u64) {
        let is_parked = matches!(connection.turn.position, QueuePosition::Parked(_));
        if self.queue.contains(slot) || is_parked {
            return;
        }
        let mut has_credit = false;
        if connection.awaits_request() && connection.input.bytes.is_empty() {
            let asked_us = std::mem::replace(&mut connection.turn.asked_us, ready_us);
            if asked_us > 0 && !self.by_client {
                let interval_us = ready_us.saturating_sub(asked_us);
                let pause_us = ready_us.saturating_sub(connection.turn.responded_us);
                self.round.note(interval_us);
                self.pauses.note(pause_us.max(policy::PAUSE_US_MIN));
                let is_seldom =
                    policy::asks_seldom(interval_us, pause_us, &self.round, &self.pauses);
                has_credit =
                    std::mem::replace(&mut connection.turn.asks_seldom, is_seldom) && is_seldom;
            }
        }
        (connection.turn.ready_us, connection.turn.here_us) = (ready_us, ready_us);
        connection.turn.key_us = policy::key_us(ready_us, has_credit, &self.round);
        self.queue.enqueue(slot, connection.turn.key_us);
        self.begin_wait(slot, ready_us);
    }

    /// Enqueues a connection from another worker, with the key that the connection had there.
    pub(crate) fn enqueue_moved(&mut self, slot: u32, connection: &Entry) {
        self.queue.enqueue(slot, connection.turn.key_us);
        self.begin_wait(slot, connection.turn.ready_us);
    }

    fn begin_wait(&mut self, slot: u32, since_us: u64) {
        if let Some(waits) = &mut self.waits {
            waits.begin(Wait::here(slot, since_us));
        }
    }

    /// Enqueues a connection with the given key. The connection's wait continues.
    pub(crate) fn requeue(&mut self, slot: u32, key_us: u64) {
        self.queue.enqueue(slot, key_us);
    }

    /// Removes the slot with the lowest key, and returns the slot.
    pub(crate) fn next(&mut self) -> Option<u32> {
        self.queue.next().map(|(slot, _)| slot)
    }

    pub(crate) fn remove(&mut self, slot: u32) {
        self.queue.remove(slot);
    }

    pub(crate) fn contains(&self, slot: u32) -> bool {
        self.queue.contains(slot)
    }

    /// Returns the number of waiting connections.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.len() == 0
    }

    /// Returns the lowest key.
    pub(crate) fn lowest_key_us(&self) -> Option<u64> {
        self.queue.oldest_us()
    }

    /// Returns the slot with the lowest key among the slots that satisfy `is_wanted`, with its key. The search is
    /// bounded.
    pub(crate) fn find_oldest(&self, is_wanted: impl FnMut(u32) -> bool) -> Option<(u32, u64)> {
        self.queue.find_oldest(is_wanted)
    }

    /// Returns all slots, in arbitrary order.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        self.queue.iter()
    }

    /// Returns the mean duration of a round, in microseconds.
    pub(crate) fn round_us(&self) -> u64 {
        self.round.us()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    use super::*;
    use crate::Peer;
    use crate::queue::client_turns::ClientTurns;

    #[test]
    fn a_client_has_credit_once_it_has_asked_seldom_twice_in_a_row() {
        let clients = ClientQueues::new(Arc::new(ClientTurns::new().unwrap()));
        let mut turns = Turns::new(clients, false, None);
        let (near, _far) = UnixStream::pair().unwrap();
        let new = || Entry::new(near.try_clone().unwrap().into(), Peer::Unix, 0, 0);
        let (mut often, mut seldom) = (new(), new());
        let mut credits = Vec::new();
        for round in 1..=130_u64 {
            for (slot, connection) in [(0, &mut often), (1, &mut seldom)] {
                // The second client begins once the round is known, and pauses for three rounds, twice.
                if slot == 1 && (round < 100 || [103, 104, 106, 107].contains(&round)) {
                    continue;
                }
                let now_us = round * 1_000;
                turns.enqueue(slot, connection, now_us);
                connection.turn.responded_us = now_us;
                turns.next();
                if connection.turn.key_us < now_us {
                    credits.push((slot, round));
                }
            }
        }
        assert_eq!(credits, [(1, 108)]);
    }
}
