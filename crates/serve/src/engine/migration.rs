//! Moves connections and requests between this worker and its siblings.

use crate::entry::{Entry, MOVED_BYTES_MAX};
use crate::events::clock::monotonic_us;
use crate::events::slab::EntryId;
use crate::queue::policy::MOVE_AFTER_US;
use crate::store::Store;
use crate::store::service_state::ServiceState;
use crate::workers::{Message, Move, WorkerHandle};

/// The number of connections considered when one is chosen for another worker.
const CANDIDATES_MAX: usize = 64;

/// The minimum time between two searches for an older request in other workers, because a search reads memory that the
/// siblings write.
const ASK_AFTER_US: u64 = 100;

/// The maximum wait for a requested offer: a sibling that can give a request needs a tenth of this time.
const OFFER_US_MAX: u64 = 1_000;

/// The time until an idle worker searches again for a request that could not be moved yet or did not arrive.
const LOOK_AGAIN_MS: u64 = 1;

/// The number of messages taken from the mailbox before connections get turns again.
const MESSAGES_MAX: usize = 64;

/// A worker's side of the single queue over all workers.
#[derive(Debug)]
pub(crate) struct Migration {
    pub(crate) worker: WorkerHandle,
    /// The sibling that was asked for a request, and the time of the question.
    asked: Option<(usize, u64)>,
    /// The time of the last check whether a sibling should be asked.
    looked_us: u64,
    /// The buffer for the bytes of a moved request.
    inbox: Vec<u8>,
}

impl Migration {
    pub(crate) fn new(worker: WorkerHandle) -> Self {
        Self { worker, asked: None, looked_us: 0, inbox: vec![0; MOVED_BYTES_MAX] }
    }

    /// Keeps a new connection, or sends the connection to the worker with the least work.
    pub(crate) fn place(&mut self, connection: Entry, store: &mut Store) {
        let now_us = store.clock.now_us;
        let kept = self.worker.place(connection, store.settings.connections_max, now_us);
        if let Some(connection) = kept {
            adopt(connection, store);
        }
    }

    /// Receives the messages of other workers, up to [`MESSAGES_MAX`].
    pub(crate) fn take_messages(&mut self, store: &mut Store) {
        self.worker.row().untaken().clear();
        for _ in 0..MESSAGES_MAX {
            if !self.take_message(store) {
                return;
            }
        }
    }

    /// Receives all messages. Siblings send nothing more to a worker that does not serve.
    pub(crate) fn take_all_messages(&mut self, store: &mut Store) {
        self.worker.row().untaken().clear();
        while self.take_message(store) {}
    }

    /// Returns the number of connections in this worker and on their way. Where only the latter fill the worker, they
    /// are taken over first: some may have been announced by a sibling that has ended.
    pub(crate) fn count(&mut self, store: &mut Store) -> usize {
        let most = store.settings.connections_max;
        if store.count() < most && self.worker.connections() >= most {
            self.take_messages(store);
        }
        store.count().max(self.worker.connections())
    }

    /// Receives a message; false if there is none.
    fn take_message(&mut self, store: &mut Store) -> bool {
        match self.worker.mailbox().receive(&mut self.inbox, store.clock.now_ms) {
            Ok(Some(Message::Connection(connection))) => {
                self.worker.row().connections().arrive();
                adopt(*connection, store);
            }
            // A bell carries no data: the news is in the workers' rows.
            Ok(Some(Message::Bell)) => {}
            Ok(None) => {
                // A sibling may have ended before it could send what it had announced.
                self.worker.row().connections().forget_coming();
                return false;
            }
            Err(errno) => {
                self.worker.row().connections().release();
                store.warn("take over a connection", errno);
            }
        }
        true
    }

    /// Takes over the connections of retiring workers, as if the connections had just been accepted.
    pub(crate) fn take_over(&mut self, store: &mut Store) {
        if store.service == ServiceState::Draining {
            return self.take_last(store);
        }
        for _ in 0..MESSAGES_MAX {
            if self.count(store) >= store.settings.connections_max {
                return;
            }
            let now_ms = store.clock.now_ms;
            match self.worker.handover().receive(&mut self.inbox, now_ms) {
                Ok(Some(connection)) => self.place(connection, store),
                Ok(None) => return,
                Err(errno) => store.warn("take over a connection", errno),
            }
        }
    }

    /// Takes over all such connections and keeps them in this worker, because the other workers end as well.
    pub(crate) fn take_last(&mut self, store: &mut Store) {
        while store.count() < store.settings.connections_max {
            let now_ms = store.clock.now_ms;
            match self.worker.handover().receive(&mut self.inbox, now_ms) {
                Ok(Some(connection)) => adopt(connection, store),
                _ => return,
            }
        }
    }

    /// Hands over the connections that are not bound to this worker to the workers that stay. Returns whether some
    /// connections have found no room yet.
    pub(crate) fn hand_over(&mut self, store: &mut Store) -> bool {
        let is_movable = |id: &EntryId| store.slab.get(*id).is_some_and(Entry::is_movable);
        let ids: Vec<_> = store.slab.ids().filter(is_movable).collect();
        for id in ids {
            let Some(connection) = store.slab.get_mut(id) else { continue };
            connection.unread_request();
            if self.worker.handover().send(connection).is_err() {
                store.settle(id);
                return true;
            }
            if let Some(socket) = connection.carrier.socket() {
                store.poller.remove(socket);
            }
            store.close(id);
        }
        false
    }

    /// Publishes this worker's state, and gives waiting requests to workers that can serve them sooner.
    pub(crate) fn share(&mut self, store: &mut Store) {
        self.forget_lost_message(store.clock.now_us);
        self.balance(store);
        self.publish(store);
        self.give(store);
    }

    /// Publishes the number of connections and waiting requests in this worker.
    pub(crate) fn publish(&self, store: &Store) {
        self.worker.note_connections(store.count(), store.activity.count());
        self.worker.note_waiting(store.turns.len(), store.oldest());
    }

    /// Asks for a request that waits in another worker and should be served before the next request here. Returns
    /// whether an offer is awaited: the request or a refusal arrives soon. A request that is already on its way counts
    /// as well, since it may be older than the next request here.
    pub(crate) fn ask_for_older(&mut self, store: &mut Store) -> bool {
        if store.turns.is_empty() {
            return false;
        }
        if self.awaits_offer() {
            return true;
        }
        let now_us = monotonic_us();
        if now_us < self.looked_us + ASK_AFTER_US {
            return false;
        }
        (self.looked_us, store.clock.now_us) = (now_us, now_us);
        self.ask(store)
    }

    /// Asks for a request that waits in another worker and should be served here and now. Returns whether an offer is
    /// awaited.
    pub(crate) fn ask(&mut self, store: &Store) -> bool {
        if self.awaits_offer() {
            return true;
        }
        let (now_us, round_us) = (store.clock.now_us, store.turns.round_us());
        let next_us = store.turns.lowest_key_us();
        self.asked = self.worker.ask(now_us, next_us, round_us).map(|giver| (giver, now_us));
        self.asked.is_some()
    }

    /// Asks for a request before a wait for work. Returns the maximum duration of the wait in milliseconds, since the
    /// awaited request may not arrive.
    pub(crate) fn begin_wait(&mut self, store: &Store) -> Option<u64> {
        // If `ask` returns false, it has just read the siblings' rows, on which `looks_again` depends.
        (self.ask(store) || self.worker.looks_again()).then_some(LOOK_AGAIN_MS)
    }

    /// Whether the asked sibling has neither given nor refused a request yet, or a message is on its way here. An offer
    /// that takes too long is not awaited.
    pub(crate) fn awaits_offer(&self) -> bool {
        let is_recent = |since_us| monotonic_us() < since_us + OFFER_US_MAX;
        let is_asking = |(giver, asked_us)| self.worker.is_asking(giver) && is_recent(asked_us);
        self.worker.row().untaken().since_us().is_some_and(is_recent)
            || self.asked.is_some_and(is_asking)
    }

    /// Forgets a message that was announced long ago: the sender may have ended before it could send the message.
    fn forget_lost_message(&self, now_us: u64) {
        let row = self.worker.row();
        if row.untaken().since_us().is_some_and(|since_us| since_us + OFFER_US_MAX <= now_us) {
            row.untaken().clear();
        }
    }

    /// Returns the number of microseconds until the oldest request here may be given away; none if no request waits or
    /// no sibling has room.
    pub(crate) fn due_in_us(&mut self, store: &Store) -> Option<u64> {
        let now_us = monotonic_us();
        if !self.worker.look_for_room(now_us) {
            return None;
        }
        let (_, ready_us) = store.oldest()?;
        Some((ready_us + MOVE_AFTER_US).saturating_sub(now_us))
    }

    /// Sends a connection to another worker if the connections of one worker are served faster than those of the other.
    fn balance(&mut self, store: &mut Store) {
        match self.worker.decide(store.clock.now_ms) {
            Move::Stay => {}
            Move::SendLeastServed(target) => {
                let least = movable(store).min_by_key(|(_, connection)| connection.share.turns);
                let id = least.map(|(id, _)| id);
                self.send(store, id, target);
            }
            Move::SendMostServed(target) => {
                let most = movable(store).max_by_key(|(_, connection)| connection.share.turns);
                let id = most.map(|(id, _)| id);
                self.send(store, id, target);
            }
        }
    }

    /// Gives the request with the lowest key to the worker that has asked, or to a worker that can serve the request
    /// now.
    fn give(&mut self, store: &mut Store) {
        let asker = self.worker.take_asker();
        if asker.is_none() && store.turns.is_empty() {
            return;
        }
        let round_us = store.turns.round_us();
        let target = self.worker.give_to(asker, store.clock.now_us, round_us);
        let is_sent = target.is_some_and(|target| {
            let id = oldest_movable(store);
            self.send(store, id, target)
        });
        if is_sent {
            self.publish(store);
        }
        if let Some(asker) = asker
            && !(is_sent && target == Some(asker))
        {
            self.worker.refuse(asker);
        }
    }

    fn send(&mut self, store: &mut Store, id: Option<EntryId>, target: usize) -> bool {
        let Some(id) = id else { return false };
        if !self.worker.has_room(target, store.settings.connections_max) {
            return false;
        }
        let Some(connection) = store.slab.get_mut(id) else { return false };
        connection.unread_request();
        let is_active = store.activity.is_active(connection.share);
        let connections_max = store.settings.connections_max;
        let is_sent = self.worker.send_open(connection, is_active, target, connections_max).is_ok();
        if is_sent {
            if let Some(socket) = connection.carrier.socket() {
                store.poller.remove(socket);
            }
            store.close(id);
        }
        is_sent
    }
}

/// Adds a connection that came from another worker or program.
pub(crate) fn adopt(connection: Entry, store: &mut Store) {
    let waits = connection.has_work();
    // A connection that cannot be watched is closed.
    if let Ok(id) = store.open(connection)
        && waits
    {
        store.enqueue_moved(id);
    }
}

/// Returns the connections that were served recently and can move to another worker.
fn movable(store: &Store) -> impl Iterator<Item = (EntryId, &Entry)> {
    let ids = store.slab.ids().take(CANDIDATES_MAX);
    let found = ids.filter_map(|id| Some((id, store.slab.get(id)?)));
    found.filter(|(_, connection)| {
        connection.is_movable() && store.activity.is_active(connection.share)
    })
}

/// Returns the connection with the lowest key among those that can move to another worker.
fn oldest_movable(store: &Store) -> Option<EntryId> {
    let oldest = store.turns.find_oldest(|slot| store.in_slot(slot).is_some_and(Entry::is_movable));
    oldest.and_then(|(slot, _)| store.slab.id_at(slot))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_says_how_much_of_a_request_moves() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/explanation/design/serve.md");
        let page = std::fs::read_to_string(page).unwrap();
        assert!(page.contains(&format!("up to {} KiB of the bytes", MOVED_BYTES_MAX >> 10)));
    }
}
