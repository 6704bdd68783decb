//! An engine's part in sharing connections with the other workers of its fleet.

use crate::connection::Connection;
use crate::core::monotonic_us;
use crate::engine::Engine;
use crate::fleet::Move;
use crate::table::Key;

/// Connections that are looked at for one to send away.
const CANDIDATES_MAX: usize = 64;

/// Connections taken from the mailbox before the others get their turns again.
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

    /// Takes connections that other workers have sent.
    pub(crate) fn take_letters(&mut self) {
        let Some(member) = &mut self.fleet else { return };
        for _ in 0..LETTERS_MAX {
            let connection = match member.receive(self.core.now_ms) {
                Ok(Some(connection)) => connection,
                Ok(None) => return,
                Err(errno) => {
                    self.core.note_trouble("take over a connection", errno);
                    continue;
                }
            };
            // One that has nothing to say was not served here, so its next request is an arrival.
            let has_bytes = connection.has_bytes();
            if let Ok(key) = self.core.open(connection)
                && has_bytes
            {
                self.core.listen_to(key);
            }
        }
    }

    /// How long the last turns took, and how long there was nothing to do.
    pub(crate) fn note_time(&mut self) {
        let now_us = monotonic_us();
        let clock = &mut self.clock;
        let idle_us = clock.wait_began_us.take().map_or(0, |began| now_us.saturating_sub(began));
        let busy_us = now_us.saturating_sub(clock.looked_us).saturating_sub(idle_us);
        if clock.turns > 0 {
            clock.turn_us = busy_us / u64::from(clock.turns);
        }
        (clock.turns, clock.looked_us) = (0, now_us);
        if let Some(member) = &mut self.fleet {
            member.note_waiting(false);
            member.note_idle(idle_us);
        }
    }

    /// Sends connections to other workers where that makes service more equal.
    pub(crate) fn balance(&mut self) {
        let Some(member) = &mut self.fleet else { return };
        member.note_connections(self.core.table.len(), self.core.activity.count());
        match member.decide(self.core.now_ms) {
            Move::Stay => {}
            Move::SendLeastServed(target) => {
                let least = self.movable().min_by_key(|(_, connection)| connection.share.turns);
                self.send(least.map(|(key, _)| key), target);
            }
            Move::SendMostServed(target) => {
                let most = self.movable().max_by_key(|(_, connection)| connection.share.turns);
                self.send(most.map(|(key, _)| key), target);
            }
        }
        self.relieve();
    }

    /// Sends a connection that waits to a worker that has nothing to do.
    fn relieve(&mut self) {
        let Some(member) = &self.fleet else { return };
        if self.core.rotation.len() < 2 || !member.sees_idle_worker() {
            return;
        }
        let mut waiting = self.movable().filter(|(_, connection)| connection.has_work());
        let last = waiting.next().map(|(key, _)| key);
        let count = waiting.count() + usize::from(last.is_some());
        if let Some(target) = member.idle_worker(count, self.clock.turn_us) {
            self.send(last, target);
        }
    }

    /// Sends connections that wait to other workers, because nobody here is going to serve them soon.
    pub(crate) fn send_waiting(&mut self) {
        let waiting = self.movable().filter(|(_, connection)| connection.has_work());
        let keys: Vec<_> = waiting.map(|(key, _)| key).collect();
        let connections_max = self.core.settings.connections_max;
        // Whoever stands first goes first.
        for key in keys.into_iter().rev() {
            let Some(target) =
                self.fleet.as_mut().and_then(|member| member.refuge(connections_max))
            else {
                return;
            };
            self.send(Some(key), target);
        }
    }

    /// Connections that could go on in another worker, the last in line first.
    fn movable(&self) -> impl Iterator<Item = (Key, &Connection)> {
        let places = self.core.rotation.walk_back().take(CANDIDATES_MAX);
        let connections = places.filter_map(|place| {
            let key = self.core.table.key_at(place)?;
            Some((key, self.core.table.get(key)?))
        });
        connections.filter(|(_, connection)| connection.is_movable())
    }

    fn send(&mut self, key: Option<Key>, target: usize) {
        let (Some(member), Some(key)) = (&mut self.fleet, key) else { return };
        let Some(connection) = self.core.table.get(key) else { return };
        let is_active = self.core.activity.is_active(connection.share);
        if member.send(connection, is_active, target).is_ok() {
            self.core.poller.remove(&connection.socket);
            self.core.close(key);
            member.note_connections(self.core.table.len(), self.core.activity.count());
        }
    }
}
