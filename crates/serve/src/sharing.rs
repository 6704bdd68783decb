//! An engine's part in sharing connections with the other workers of its fleet.

use crate::connection::Connection;
use crate::core::monotonic_us;
use crate::engine::Engine;
use crate::fleet::{Letter, Member, Move};
use crate::table::Key;

/// Connections that are looked at for one to send away.
const CANDIDATES_MAX: usize = 64;

/// Between two looks whether another worker has an older request: it reads what the others write.
const ASK_AFTER_US: u64 = 100;

/// Letters taken from the mailbox before the others get their turns again.
const LETTERS_MAX: usize = 64;

impl Engine {
    /// Keeps a new connection, or sends it to the worker with the least to do.
    pub(crate) fn place(&mut self, connection: Connection) {
        let kept = match &mut self.fleet {
            Some(member) => member.place(connection, self.core.settings.connections_max),
            None => Some(connection),
        };
        if let Some(connection) = kept {
            // One that cannot be watched is closed again.
            let _ = self.core.open(connection);
        }
    }

    /// Takes what other workers have sent.
    pub(crate) fn take_letters(&mut self) {
        let Some(member) = &mut self.fleet else { return };
        for _ in 0..LETTERS_MAX {
            let connection = match member.receive(self.core.now_ms) {
                Ok(Some(Letter::Connection(connection))) => connection,
                // What it is about stands in the workers' rows.
                Ok(Some(Letter::Bell)) => continue,
                Ok(None) => return,
                Err(errno) => {
                    self.core.note_trouble("take over a connection", errno);
                    continue;
                }
            };
            let waits = connection.has_work();
            if let Ok(key) = self.core.open(connection)
                && waits
            {
                self.core.enqueue_moved(key);
            }
        }
    }

    /// How long there was nothing to do.
    pub(crate) fn note_time(&mut self) {
        let now_us = monotonic_us();
        let clock = &mut self.clock;
        let idle_us = clock.wait_began_us.take().map_or(0, |began| now_us.saturating_sub(began));
        (clock.turns, clock.looked_us) = (0, now_us);
        if let Some(member) = &mut self.fleet {
            member.note_idle(idle_us);
        }
    }

    /// Does its part in one queue over all workers: tells the others how it stands here, and gives requests that
    /// wait to workers that can serve them sooner.
    pub(crate) fn share(&mut self) {
        if self.fleet.is_none() {
            return;
        }
        self.balance();
        self.publish();
        self.give();
    }

    /// Tells the other workers what waits here.
    pub(crate) fn publish(&self) {
        if let Some(member) = &self.fleet {
            member.note_connections(self.core.table.len(), self.core.activity.count());
            member.note_waiting(self.core.queue.len(), self.core.oldest());
        }
    }

    /// Exchanges connections where those of one worker are served faster than those of another.
    fn balance(&mut self) {
        let Some(member) = &mut self.fleet else { return };
        match member.decide(self.core.now_ms) {
            Move::Stay => {}
            Move::SendLeastServed(target) => {
                let least = self.resting().min_by_key(|(_, connection)| connection.share.turns);
                let key = least.map(|(key, _)| key);
                self.send(key, target);
            }
            Move::SendMostServed(target) => {
                let most = self.resting().max_by_key(|(_, connection)| connection.share.turns);
                let key = most.map(|(key, _)| key);
                self.send(key, target);
            }
        }
    }

    /// Gives the request that has waited longest to the worker that has asked, or to one that can serve it now.
    fn give(&mut self) {
        let Some(member) = &mut self.fleet else { return };
        let asker = member.take_asker();
        if asker.is_none() && self.core.queue.len() == 0 {
            return;
        }
        let target = member.give_to(asker, self.core.now_us);
        let is_sent = target.is_some_and(|target| {
            let key = self.oldest_movable();
            self.send(key, target)
        });
        if is_sent {
            self.publish();
        }
        if let (Some(asker), Some(member)) = (asker, &self.fleet)
            && !(is_sent && target == Some(asker))
        {
            member.refuse(asker);
        }
    }

    fn oldest_movable(&self) -> Option<Key> {
        let core = &self.core;
        let oldest = core.queue.find_oldest(|place| {
            let key = core.table.key_at(place);
            key.and_then(|key| core.table.get(key)).is_some_and(Connection::is_movable)
        });
        oldest.and_then(|(place, _)| core.table.key_at(place))
    }

    /// Asks for a request that waits elsewhere and should be served before the next one here, if there is one. If so,
    /// it comes or is refused soon: the owner waits until [`awaits_answer`](Self::awaits_answer) says no, not for long.
    pub fn ask_for_older(&mut self) -> bool {
        if self.fleet.is_none() || self.core.queue.len() == 0 {
            return false;
        }
        let now_us = monotonic_us();
        if now_us < self.asked_us + ASK_AFTER_US {
            return false;
        }
        (self.asked_us, self.core.now_us) = (now_us, now_us);
        self.ask()
    }

    /// Asks for a request that waits elsewhere and should be served here, and now.
    pub(crate) fn ask(&mut self) -> bool {
        let round_us = self.core.round.us();
        let next_us = self.core.queue.oldest_us();
        let Some(member) = &mut self.fleet else { return false };
        self.asked = member.ask(self.core.now_us, next_us, round_us);
        self.asked.is_some()
    }

    /// Whether there is no answer yet to what was asked.
    #[must_use]
    pub fn awaits_answer(&self) -> bool {
        let answered = |member: &Member| self.asked.is_none_or(|giver| !member.is_asking(giver));
        !self.fleet.as_ref().is_none_or(answered)
    }

    /// Connections that have been served lately and could go on in another worker.
    fn resting(&self) -> impl Iterator<Item = (Key, &Connection)> {
        let keys = self.core.table.keys().take(CANDIDATES_MAX);
        let connections = keys.filter_map(|key| Some((key, self.core.table.get(key)?)));
        connections.filter(|(_, connection)| {
            connection.is_movable() && self.core.activity.is_active(connection.share)
        })
    }

    fn send(&mut self, key: Option<Key>, target: usize) -> bool {
        let (Some(member), Some(key)) = (&mut self.fleet, key) else { return false };
        let Some(connection) = self.core.table.get(key) else { return false };
        let is_active = self.core.activity.is_active(connection.share);
        let is_sent = member.has_room(target, self.core.settings.connections_max)
            && member.send(connection, is_active, target).is_ok();
        if is_sent {
            self.core.poller.remove(&connection.socket);
            self.core.close(key);
        }
        is_sent
    }
}
