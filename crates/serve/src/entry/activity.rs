//! Counts active connections, and measures the recent service of each.

/// A connection is active if it had a turn in the current epoch or in the one before.
const EPOCH_MS: u64 = 256;

/// The recent service of a connection: its turns, halved with each epoch that has passed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RecentService {
    pub(crate) turns: u32,
    /// The epoch of the last turn; zero if the connection had none.
    pub(crate) epoch: u32,
}

/// Counts the active connections of this engine.
#[derive(Debug, Default)]
pub(crate) struct ActiveConnections {
    epoch: u32,
    /// Connections whose last turn was in the current epoch.
    now: u64,
    /// Connections whose last turn was in the previous epoch.
    before: u64,
}

impl ActiveConnections {
    /// The number of active connections.
    pub(crate) fn count(&self) -> u64 {
        self.now + self.before
    }

    /// Moves on to the epoch of `now_ms`.
    pub(crate) fn advance(&mut self, now_ms: u64) {
        let epoch = epoch_of(now_ms);
        if epoch != self.epoch {
            let is_next = epoch == self.epoch.wrapping_add(1);
            self.before = if is_next { self.now } else { 0 };
            (self.epoch, self.now) = (epoch, 0);
        }
    }

    /// Records a turn of a connection that is counted in this engine.
    pub(crate) fn note_turn(&mut self, share: &mut RecentService) {
        if share.epoch != self.epoch {
            self.leave(*share);
            share.turns >>= self.epoch.wrapping_sub(share.epoch).min(31);
            share.epoch = self.epoch;
            self.enter(*share);
        }
        share.turns = share.turns.saturating_add(1);
    }

    /// Counts a connection that arrives in this engine.
    pub(crate) fn enter(&mut self, share: RecentService) {
        if let Some(count) = self.count_of(share) {
            *count += 1;
        }
    }

    /// Stops counting a connection that leaves this engine.
    pub(crate) fn leave(&mut self, share: RecentService) {
        if let Some(count) = self.count_of(share) {
            *count = count.saturating_sub(1);
        }
    }

    /// Whether a connection is active.
    pub(crate) fn is_active(&self, share: RecentService) -> bool {
        share.epoch != 0 && self.epoch.wrapping_sub(share.epoch) <= 1
    }

    fn count_of(&mut self, share: RecentService) -> Option<&mut u64> {
        match self.epoch.wrapping_sub(share.epoch) {
            _ if share.epoch == 0 => None,
            0 => Some(&mut self.now),
            1 => Some(&mut self.before),
            _ => None,
        }
    }
}

/// The number of the epoch, never zero.
fn epoch_of(now_ms: u64) -> u32 {
    u32::try_from(now_ms / EPOCH_MS % u64::from(u32::MAX)).map_or(1, |epoch| epoch + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_counted_once_while_they_are_active() {
        let mut activity = ActiveConnections::default();
        let mut shares = [RecentService::default(); 3];
        activity.advance(5 * EPOCH_MS);
        shares.iter_mut().for_each(|share| (0..4).for_each(|_| activity.note_turn(share)));
        assert_eq!((activity.count(), shares[0].turns), (3, 4));
        activity.advance(6 * EPOCH_MS);
        activity.note_turn(&mut shares[0]);
        assert_eq!((activity.count(), shares[0].turns), (3, 3));
        activity.advance(7 * EPOCH_MS);
        assert_eq!(activity.count(), 1, "the others have had no turn for an epoch");
        assert!(activity.is_active(shares[0]) && !activity.is_active(shares[1]));
        activity.advance(9 * EPOCH_MS);
        assert_eq!(activity.count(), 0);
    }

    #[test]
    fn a_connection_that_moves_is_counted_where_it_is() {
        let (mut here, mut there) = (ActiveConnections::default(), ActiveConnections::default());
        let (mut moved, idle) = (RecentService::default(), RecentService::default());
        here.advance(EPOCH_MS);
        here.note_turn(&mut moved);
        for now_ms in [EPOCH_MS, 2 * EPOCH_MS, 3 * EPOCH_MS] {
            here.advance(now_ms);
            there.advance(now_ms);
            here.leave(moved);
            there.enter(moved);
            std::mem::swap(&mut here, &mut there);
            let expected = u64::from(now_ms < 3 * EPOCH_MS);
            assert_eq!((here.count(), there.count()), (expected, 0));
        }
        here.leave(idle);
        assert_eq!(here.count(), 0);
    }
}
