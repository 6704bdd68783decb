//! The waits of requests, longest first.
//!
//! The run queue does not know them: credit and the turns of clients change its keys, and parked requests are not in
//! it.

use std::collections::VecDeque;

/// Waits in the order of their beginnings. An ended wait stays until it is the first, so the list holds as many as
/// begin during the longest wait. A request that has also waited at a proxy is listed twice.
#[derive(Debug, Default)]
pub(crate) struct Waits(VecDeque<Wait>);

/// A wait of a connection, current or ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) since_us: u64,
    /// When the wait in this server began. A different time identifies another wait of the same connection.
    pub(crate) ready_us: u64,
    pub(crate) slot: u32,
}

impl Wait {
    /// A wait that began in this server.
    pub(crate) fn here(slot: u32, ready_us: u64) -> Self {
        Self { since_us: ready_us, ready_us, slot }
    }
}

impl Waits {
    pub(crate) fn begin(&mut self, wait: Wait) {
        if self.0.back().is_none_or(|last| last.since_us <= wait.since_us) {
            return self.0.push_back(wait);
        }
        // The wait began in another worker.
        let at = self.0.partition_point(|other| other.since_us <= wait.since_us);
        self.0.insert(at, wait);
    }

    /// Removes the ended waits at the front.
    pub(crate) fn trim(&mut self, lasts: impl Fn(Wait) -> bool) {
        while self.0.front().is_some_and(|first| !lasts(*first)) {
            self.0.pop_front();
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Wait> + '_ {
        self.0.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_wait_is_the_first_wherever_it_began() {
        let mut waits = Waits::default();
        for (since_us, slot) in [(10, 1), (30, 2), (20, 3), (30, 4), (5, 5)] {
            waits.begin(Wait::here(slot, since_us));
        }
        let slots = |waits: &Waits| waits.iter().map(|wait| wait.slot).collect::<Vec<_>>();
        assert_eq!(slots(&waits), [5, 1, 3, 2, 4]);
        waits.trim(|wait| ![5, 1, 2].contains(&wait.slot));
        assert_eq!(slots(&waits), [3, 2, 4], "an ended wait stays behind a wait that lasts");
    }
}
