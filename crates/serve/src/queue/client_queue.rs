//! Waiting requests by client: each client has one request in the run queue, however many connections it has.
//!
//! A client's other requests are *parked* behind the first, in their order. The key of the first is the time at which
//! it was ready or the client's last turn, whichever is later. So clients take turns, across all workers.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::client_turns::{Client, ClientTurns};
use super::mean_interval::MeanInterval;
use super::policy;
use crate::events::slab::EntryId;

/// The clients of a worker that have waiting requests.
#[derive(Debug)]
pub(crate) struct ClientQueues {
    turns: Arc<ClientTurns>,
    /// The requests parked behind each client's first.
    parked: HashMap<Client, VecDeque<EntryId>>,
    /// The length of a round of clients.
    round: MeanInterval,
}

impl ClientQueues {
    pub(crate) fn new(turns: Arc<ClientTurns>) -> Self {
        Self { turns, parked: HashMap::new(), round: MeanInterval::default() }
    }

    /// The client with a name.
    pub(crate) fn client(&self, name: &[u8]) -> Client {
        self.turns.client(name)
    }

    /// Adds a request of `client` that is ready. Returns its key if it is the client's first in this worker; none if
    /// the request is parked.
    pub(crate) fn enter(&mut self, client: Client, id: EntryId, ready_us: u64) -> Option<u64> {
        if let Some(parked) = self.parked.get_mut(&client) {
            parked.push_back(id);
            return None;
        }
        self.parked.insert(client, VecDeque::new());
        Some(self.first_key_us(client, ready_us))
    }

    /// The current key of the client's first request: another worker may have served the client in the meantime.
    pub(crate) fn key_us(&self, client: Client, key_us: u64, ready_us: u64) -> u64 {
        let last_us = self.turns.last_us(client);
        if last_us > ready_us { key_us.max(last_us) } else { key_us }
    }

    /// Records the turn of the client's first request.
    pub(crate) fn note_turn(&mut self, client: Client, now_us: u64) {
        let last_us = self.turns.note(client, now_us);
        if last_us > 0 {
            self.round.note(now_us.saturating_sub(last_us));
        }
    }

    /// Removes the client's first request, which was served, has moved or is gone. Returns the next request that still
    /// waits.
    pub(crate) fn leave(
        &mut self,
        client: Client,
        is_there: impl Fn(EntryId) -> bool,
    ) -> Option<EntryId> {
        let parked = self.parked.get_mut(&client)?;
        while let Some(id) = parked.pop_front() {
            if is_there(id) {
                return Some(id);
            }
        }
        self.parked.remove(&client);
        None
    }

    /// The key of a request that becomes the client's first.
    pub(crate) fn first_key_us(&self, client: Client, ready_us: u64) -> u64 {
        let last_us = self.turns.last_us(client);
        let interval_us = if last_us == 0 { 0 } else { ready_us.saturating_sub(last_us) };
        let pauses = MeanInterval::default();
        let is_seldom = policy::asks_seldom(interval_us, 0, &self.round, &pauses);
        policy::key_us(ready_us, is_seldom, &self.round).max(last_us)
    }

    /// The number of clients that wait.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.parked.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::queue::run_queue::RunQueue;

    fn id(slot: u32) -> EntryId {
        EntryId::from_word(slot.into())
    }

    fn queues() -> ClientQueues {
        ClientQueues::new(Arc::new(ClientTurns::new().unwrap()))
    }

    #[test]
    fn one_request_of_a_client_waits_in_the_run_queue() {
        let mut queues = queues();
        let [one, other] = [queues.client(b"one"), queues.client(b"other")];
        assert_eq!(queues.enter(one, id(1), 10), Some(10));
        assert_eq!(queues.enter(one, id(2), 11), None);
        assert_eq!(queues.enter(other, id(3), 12), Some(12));
        queues.note_turn(one, 20);
        assert_eq!(queues.leave(one, |_| true), Some(id(2)));
        assert_eq!(queues.first_key_us(one, 11), 20, "behind those that waited at its turn");
        assert_eq!(queues.leave(one, |_| true), None);
        assert_eq!(queues.enter(one, id(4), 21), Some(21));
    }

    #[test]
    fn requests_that_are_gone_are_skipped_and_nothing_is_kept() {
        let mut queues = queues();
        let client = queues.client(b"one");
        let entered = (0..10).filter(|slot| queues.enter(client, id(*slot), 0).is_some());
        assert_eq!(entered.count(), 1);
        assert_eq!(queues.leave(client, |id| id.slot() > 7), Some(id(8)));
        assert_eq!(queues.leave(client, |_| false), None);
        assert_eq!(queues.len(), 0);
    }

    #[test]
    fn a_turn_in_another_worker_counts() {
        let turns = Arc::new(ClientTurns::new().unwrap());
        let mut workers = [(); 2].map(|()| ClientQueues::new(Arc::clone(&turns)));
        let client = workers[0].client(b"one");
        let key_us = workers[0].enter(client, id(1), 10).unwrap();
        assert_eq!(workers[1].enter(client, id(1), 10), Some(10));
        workers[1].note_turn(client, 30);
        assert_eq!(workers[0].key_us(client, key_us, 10), 30);
    }

    #[test]
    fn a_client_that_asks_seldom_goes_first() {
        let mut queues = queues();
        let [busy, seldom] = [queues.client(b"busy"), queues.client(b"seldom")];
        queues.note_turn(seldom, 1);
        (1..100).for_each(|turn| queues.note_turn(busy, turn * 100));
        let key_us = queues.enter(seldom, id(1), 9_950).unwrap();
        assert!((9_840..9_860).contains(&key_us), "a round is its credit: {key_us}");
    }

    /// The waiting requests of one worker.
    struct Worker {
        queues: ClientQueues,
        queue: RunQueue,
        /// By slot: the client, and when its request was ready.
        waiting: HashMap<u32, (usize, u64)>,
        slots: u32,
    }

    impl Worker {
        fn ask(&mut self, client: Client, number: usize, now_us: u64) {
            self.slots += 1;
            self.waiting.insert(self.slots, (number, now_us));
            if let Some(key_us) = self.queues.enter(client, id(self.slots), now_us) {
                self.queue.enqueue(self.slots, key_us);
            }
        }

        /// Serves the first request, and returns the number of its client.
        fn serve(&mut self, clients: &[Client], now_us: u64) -> Option<usize> {
            loop {
                let (slot, key_us) = self.queue.next()?;
                let (number, ready_us) = self.waiting[&slot];
                let client = clients[number];
                let now_key_us = self.queues.key_us(client, key_us, ready_us);
                if self.queue.oldest_us().is_some_and(|next_us| next_us < now_key_us) {
                    self.queue.enqueue(slot, now_key_us);
                    continue;
                }
                self.waiting.remove(&slot);
                self.queues.note_turn(client, now_us);
                if let Some(next) = self.queues.leave(client, |_| true) {
                    let (_, ready_us) = self.waiting[&next.slot()];
                    self.queue.enqueue(next.slot(), self.queues.first_key_us(client, ready_us));
                }
                return Some(number);
            }
        }
    }

    proptest! {
        /// In each step, a client sends a request to a worker, or a worker serves its first request. A client with any
        /// number of requests passes a waiting client at most once, and each request is served.
        #[test]
        fn no_client_passes_a_waiting_one_twice(
            steps in prop::collection::vec((0..3, 0_usize..2, 0_usize..5, 1_u64..300), 0..400),
        ) {
            let turns = Arc::new(ClientTurns::new().unwrap());
            let clients = turns.clients_apart(5);
            let mut workers = [(); 2].map(|()| Worker {
                queues: ClientQueues::new(Arc::clone(&turns)),
                queue: RunQueue::default(),
                waiting: HashMap::new(),
                slots: 0,
            });
            let (mut now_us, mut asked, mut served) = (0, 0, 0);
            // By worker: how often the second client was served while the first waited and had no turn elsewhere.
            let mut passed = [[[0; 5]; 5]; 2];
            for (step, at, number, pause_us) in steps {
                now_us += pause_us;
                let worker = &mut workers[at];
                if step < 2 {
                    if !worker.waiting.values().any(|(waiting, _)| *waiting == number) {
                        passed[at][number] = [0; 5];
                    }
                    worker.ask(clients[number], number, now_us);
                    asked += 1;
                } else if let Some(number) = worker.serve(&clients, now_us) {
                    served += 1;
                    passed.iter_mut().for_each(|passed| passed[number] = [0; 5]);
                    let waiting: std::collections::HashSet<_> =
                        worker.waiting.values().map(|(client, _)| *client).collect();
                    for client in waiting.into_iter().filter(|client| *client != number) {
                        passed[at][client][number] += 1;
                        prop_assert!(passed[at][client][number] <= 1, "{client} by {number}");
                    }
                }
            }
            for worker in &mut workers {
                served += std::iter::from_fn(|| worker.serve(&clients, now_us + 1)).count();
                prop_assert_eq!((worker.queues.len(), worker.waiting.len()), (0, 0));
            }
            prop_assert_eq!(served, asked);
        }
    }
}
