//! An engine's part in sharing connections with the other workers of its group.

use crate::connection::Connection;
use crate::connections::monotonic_us;
use crate::engine::Engine;
use crate::slab::ConnectionId;
use crate::workers::{Message, Move, WorkerHandle};

/// Connections that are looked at for one to send away.
const CANDIDATES_MAX: usize = 64;

/// Between two looks whether another worker has an older request: it reads what the others write.
const ASK_AFTER_US: u64 = 100;

/// Messages taken from the mailbox before the others get their turns again.
const MESSAGES_MAX: usize = 64;

impl Engine {
    /// Keeps a new connection, or sends it to the worker with the least to do.
    pub(crate) fn place(&mut self, connection: Connection) {
        let kept = match &mut self.worker {
            Some(worker) => worker.place(connection, self.connections.settings.connections_max),
            None => Some(connection),
        };
        if let Some(connection) = kept {
            // One that cannot be watched is closed again.
            let _ = self.connections.open(connection);
        }
    }

    /// Takes what other workers have sent.
    pub(crate) fn take_messages(&mut self) {
        let Some(worker) = &mut self.worker else { return };
        for _ in 0..MESSAGES_MAX {
            let connection = match worker.receive(self.connections.now_ms) {
                Ok(Some(Message::Connection(connection))) => connection,
                // What it is about stands in the workers' rows.
                Ok(Some(Message::Bell)) => continue,
                Ok(None) => return,
                Err(errno) => {
                    self.connections.warn("take over a connection", errno);
                    continue;
                }
            };
            let waits = connection.has_work();
            if let Ok(id) = self.connections.open(connection)
                && waits
            {
                self.connections.enqueue_moved(id);
            }
        }
    }

    /// How long there was nothing to do.
    pub(crate) fn note_time(&mut self) {
        let now_us = monotonic_us();
        let clock = &mut self.clock;
        let idle_us = clock.wait_began_us.take().map_or(0, |began| now_us.saturating_sub(began));
        (clock.turns, clock.looked_us) = (0, now_us);
        if let Some(worker) = &mut self.worker {
            worker.note_idle(idle_us);
        }
    }

    /// Does its part in one queue over all workers: tells the others how it stands here, and gives requests that
    /// wait to workers that can serve them sooner.
    pub(crate) fn share(&mut self) {
        if self.worker.is_none() {
            return;
        }
        self.balance();
        self.publish();
        self.give();
    }

    /// Tells the other workers what waits here.
    pub(crate) fn publish(&self) {
        if let Some(worker) = &self.worker {
            worker.note_connections(self.connections.slab.len(), self.connections.activity.count());
            worker.note_waiting(self.connections.queue.len(), self.connections.oldest());
        }
    }

    /// Exchanges connections where those of one worker are served faster than those of another.
    fn balance(&mut self) {
        let Some(worker) = &mut self.worker else { return };
        match worker.decide(self.connections.now_ms) {
            Move::Stay => {}
            Move::SendLeastServed(target) => {
                let least = self.resting().min_by_key(|(_, connection)| connection.share.turns);
                let id = least.map(|(id, _)| id);
                self.send(id, target);
            }
            Move::SendMostServed(target) => {
                let most = self.resting().max_by_key(|(_, connection)| connection.share.turns);
                let id = most.map(|(id, _)| id);
                self.send(id, target);
            }
        }
    }

    /// Gives the request that has waited longest to the worker that has asked, or to one that can serve it now.
    fn give(&mut self) {
        let Some(worker) = &mut self.worker else { return };
        let asker = worker.take_asker();
        if asker.is_none() && self.connections.queue.len() == 0 {
            return;
        }
        let target = worker.give_to(asker, self.connections.now_us);
        let is_sent = target.is_some_and(|target| {
            let id = self.oldest_movable();
            self.send(id, target)
        });
        if is_sent {
            self.publish();
        }
        if let (Some(asker), Some(worker)) = (asker, &self.worker)
            && !(is_sent && target == Some(asker))
        {
            worker.refuse(asker);
        }
    }

    fn oldest_movable(&self) -> Option<ConnectionId> {
        let connections = &self.connections;
        let oldest = connections.queue.find_oldest(|slot| {
            let id = connections.slab.id_at(slot);
            id.and_then(|id| connections.slab.get(id)).is_some_and(Connection::is_movable)
        });
        oldest.and_then(|(slot, _)| connections.slab.id_at(slot))
    }

    /// Asks for a request that waits elsewhere and should be served before the next one here, if there is one. If so,
    /// it comes or is refused soon: the owner waits until [`awaits_offer`](Self::awaits_offer) says no, not for long.
    pub fn ask_for_older(&mut self) -> bool {
        if self.worker.is_none() || self.connections.queue.len() == 0 {
            return false;
        }
        let now_us = monotonic_us();
        if now_us < self.asked_us + ASK_AFTER_US {
            return false;
        }
        (self.asked_us, self.connections.now_us) = (now_us, now_us);
        self.ask()
    }

    /// Asks for a request that waits elsewhere and should be served here, and now.
    pub(crate) fn ask(&mut self) -> bool {
        let round_us = self.connections.round.us();
        let next_us = self.connections.queue.oldest_us();
        let Some(worker) = &mut self.worker else { return false };
        self.asked = worker.ask(self.connections.now_us, next_us, round_us);
        self.asked.is_some()
    }

    /// Whether there is no answer yet to what was asked.
    #[must_use]
    pub fn awaits_offer(&self) -> bool {
        let answered =
            |worker: &WorkerHandle| self.asked.is_none_or(|giver| !worker.is_asking(giver));
        !self.worker.as_ref().is_none_or(answered)
    }

    /// Connections that have been served lately and could go on in another worker.
    fn resting(&self) -> impl Iterator<Item = (ConnectionId, &Connection)> {
        let ids = self.connections.slab.ids().take(CANDIDATES_MAX);
        let connections = ids.filter_map(|id| Some((id, self.connections.slab.get(id)?)));
        connections.filter(|(_, connection)| {
            connection.is_movable() && self.connections.activity.is_active(connection.share)
        })
    }

    fn send(&mut self, id: Option<ConnectionId>, target: usize) -> bool {
        let (Some(worker), Some(id)) = (&mut self.worker, id) else { return false };
        let Some(connection) = self.connections.slab.get(id) else { return false };
        let is_active = self.connections.activity.is_active(connection.share);
        let is_sent = worker.has_room(target, self.connections.settings.connections_max)
            && worker.send(connection, is_active, target).is_ok();
        if is_sent {
            self.connections.poller.remove(&connection.socket);
            self.connections.close(id);
        }
        is_sent
    }
}
