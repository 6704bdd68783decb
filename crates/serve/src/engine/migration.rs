//! How connections and requests move between this worker and its siblings.

use crate::entry::{Entry, MOVED_BYTES_MAX};
use crate::events::clock::monotonic_us;
use crate::events::slab::EntryId;
use crate::queue::policy::MOVE_AFTER_US;
use crate::store::Store;
use crate::store::service_state::ServiceState;
use crate::workers::{Message, Move, WorkerHandle};

/// Connections that are looked at for one to send away.
const CANDIDATES_MAX: usize = 64;

/// Between two searches for an older request in another worker: they read what the siblings write.
const ASK_AFTER_US: u64 = 100;

/// How long what was asked for is awaited: a sibling that can give needs a tenth of that.
const OFFER_US_MAX: u64 = 1_000;

/// Until an idle worker looks again for a request that was not to be moved yet, or that did not come.
const LOOK_AGAIN_MS: u64 = 1;

/// Messages taken from the mailbox before connections get their turns again.
const MESSAGES_MAX: usize = 64;

/// This worker's side of the one queue over all workers.
#[derive(Debug)]
pub(crate) struct Migration {
    pub(crate) worker: WorkerHandle,
    /// The sibling that was asked for a request, and when.
    asked: Option<(usize, u64)>,
    /// When it was last checked whether a sibling should be asked.
    looked_us: u64,
    /// Where a moved request's bytes come in.
    inbox: Vec<u8>,
}

impl Migration {
    pub(crate) fn new(worker: WorkerHandle) -> Self {
        Self { worker, asked: None, looked_us: 0, inbox: vec![0; MOVED_BYTES_MAX] }
    }

    /// Keeps a new connection, or sends it to the worker with the least to do.
    pub(crate) fn place(&mut self, connection: Entry, store: &mut Store) {
        let now_us = store.clock.now_us;
        let kept = self.worker.place(connection, store.settings.connections_max, now_us);
        if let Some(connection) = kept {
            keep(connection, store);
        }
    }

    /// Takes what other workers have sent.
    pub(crate) fn take_messages(&mut self, store: &mut Store) {
        self.worker.row().untaken().clear();
        for _ in 0..MESSAGES_MAX {
            if !self.take_message(store) {
                return;
            }
        }
    }

    /// Takes all of that: siblings send nothing more to a worker that does not serve.
    pub(crate) fn take_all_messages(&mut self, store: &mut Store) {
        self.worker.row().untaken().clear();
        while self.take_message(store) {}
    }

    /// Takes a message; false if there is none.
    fn take_message(&mut self, store: &mut Store) -> bool {
        match self.worker.mailbox().receive(&mut self.inbox, store.clock.now_ms) {
            Ok(Some(Message::Connection(connection))) => keep(*connection, store),
            // What it is about stands in the workers' rows.
            Ok(Some(Message::Bell)) => {}
            Ok(None) => return false,
            Err(errno) => store.warn("take over a connection", errno),
        }
        true
    }

    /// Takes what workers that retire have left, as if it had just been accepted.
    pub(crate) fn take_over(&mut self, store: &mut Store) {
        if store.service == ServiceState::Draining {
            return self.take_last(store);
        }
        for _ in 0..MESSAGES_MAX {
            if store.count() >= store.settings.connections_max {
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

    /// Takes all of that, and keeps it here: the other workers end as well.
    pub(crate) fn take_last(&mut self, store: &mut Store) {
        while store.count() < store.settings.connections_max {
            let now_ms = store.clock.now_ms;
            match self.worker.handover().receive(&mut self.inbox, now_ms) {
                Ok(Some(connection)) => keep(connection, store),
                _ => return,
            }
        }
    }

    /// Leaves what needs nothing of this worker to those that stay. Whether some of it has no room yet.
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

    /// Does this worker's part: publishes its state, and gives waiting requests to workers that can serve them sooner.
    pub(crate) fn share(&mut self, store: &mut Store) {
        self.forget_lost_message(store.clock.now_us);
        self.balance(store);
        self.publish(store);
        self.give(store);
    }

    /// Tells the other workers what waits here.
    pub(crate) fn publish(&self, store: &Store) {
        self.worker.note_connections(store.count(), store.activity.count());
        self.worker.note_waiting(store.turns.len(), store.oldest());
    }

    /// Asks for a request that waits elsewhere and should be served before the next one here. If this was asked, the
    /// request or a refusal comes soon. So does what is on its way anyway, and it may be older than the next one here.
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

    /// Asks for a request that waits elsewhere and should be served here, and now. Whether something is awaited.
    pub(crate) fn ask(&mut self, store: &Store) -> bool {
        if self.awaits_offer() {
            return true;
        }
        let (now_us, round_us) = (store.clock.now_us, store.turns.round_us());
        let next_us = store.turns.lowest_key_us();
        self.asked = self.worker.ask(now_us, next_us, round_us).map(|giver| (giver, now_us));
        self.asked.is_some()
    }

    /// Asks before a wait for work. How long that may last at most, in milliseconds: what is awaited may not come.
    pub(crate) fn begin_wait(&mut self, store: &Store) -> Option<u64> {
        // If it asks for nothing, it has just read the siblings' rows.
        (self.ask(store) || self.worker.looks_again()).then_some(LOOK_AGAIN_MS)
    }

    /// Whether the sibling that was asked has neither given nor refused yet, or something else is on its way here. What
    /// takes too long is not awaited.
    pub(crate) fn awaits_offer(&self) -> bool {
        let is_recent = |since_us| monotonic_us() < since_us + OFFER_US_MAX;
        let is_asking = |(giver, asked_us)| self.worker.is_asking(giver) && is_recent(asked_us);
        self.worker.row().untaken().since_us().is_some_and(is_recent)
            || self.asked.is_some_and(is_asking)
    }

    /// Forgets what was announced long ago: its sender may have ended before it could send that.
    fn forget_lost_message(&self, now_us: u64) {
        let row = self.worker.row();
        if row.untaken().since_us().is_some_and(|since_us| since_us + OFFER_US_MAX <= now_us) {
            row.untaken().clear();
        }
    }

    /// How long the oldest request here may wait before it can be given away, in microseconds. None if nothing waits,
    /// or if no sibling has room.
    pub(crate) fn due_in_us(&mut self, store: &Store) -> Option<u64> {
        let now_us = monotonic_us();
        if !self.worker.look_for_room(now_us) {
            return None;
        }
        let (_, ready_us) = store.oldest()?;
        Some((ready_us + MOVE_AFTER_US).saturating_sub(now_us))
    }

    /// Exchanges connections where those of one worker are served faster than those of another.
    fn balance(&mut self, store: &mut Store) {
        match self.worker.decide(store.clock.now_ms) {
            Move::Stay => {}
            Move::SendLeastServed(target) => {
                let least = resting(store).min_by_key(|(_, connection)| connection.share.turns);
                let id = least.map(|(id, _)| id);
                self.send(store, id, target);
            }
            Move::SendMostServed(target) => {
                let most = resting(store).max_by_key(|(_, connection)| connection.share.turns);
                let id = most.map(|(id, _)| id);
                self.send(store, id, target);
            }
        }
    }

    /// Gives the request that has waited longest to the worker that has asked, or to a worker that can serve it now.
    fn give(&mut self, store: &mut Store) {
        let asker = self.worker.take_asker();
        if asker.is_none() && store.turns.is_empty() {
            return;
        }
        let target = self.worker.give_to(asker, store.clock.now_us);
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
        let is_sent = self.worker.send(connection, is_active, target).is_ok();
        if is_sent {
            if let Some(socket) = connection.carrier.socket() {
                store.poller.remove(socket);
            }
            store.close(id);
        }
        is_sent
    }
}

/// Goes on with a connection that came from elsewhere.
pub(crate) fn keep(connection: Entry, store: &mut Store) {
    let waits = connection.has_work();
    // A connection that cannot be watched is closed again.
    if let Ok(id) = store.open(connection)
        && waits
    {
        store.enqueue_moved(id);
    }
}

/// Connections that have been served lately and could go on in another worker.
fn resting(store: &Store) -> impl Iterator<Item = (EntryId, &Entry)> {
    let ids = store.slab.ids().take(CANDIDATES_MAX);
    let found = ids.filter_map(|id| Some((id, store.slab.get(id)?)));
    found.filter(|(_, connection)| {
        connection.is_movable() && store.activity.is_active(connection.share)
    })
}

/// The connection with the lowest key among those that could go on in another worker.
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
        assert!(page.contains(&format!("up to {} KiB of what was read", MOVED_BYTES_MAX >> 10)));
    }
}
