//! The time for which the cached state of a folder is valid.

use std::time::{Duration, Instant};

/// After a pause of this length nothing is valid any more: this process may have learned of a change in a way
/// that is not interposed, such as a file or a C library. A boot has no such pauses.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Without a pause, the cached state is valid for this long.
const AGE_MAX: Duration = Duration::from_secs(30);

/// A logical clock that ticks when something may have changed.
#[derive(Debug)]
pub(super) struct Validity {
    /// The current tick: the number of invalidations.
    now: u64,
    /// Checks before this tick are no longer valid.
    valid_since: u64,
    /// Checks before this tick are not valid for folders that are not steady.
    looked_since: u64,
    /// Whether changes by this process are reported. Otherwise folders that are not steady are checked again
    /// in each look-up.
    is_interposed: bool,
    /// When `valid_since` was set.
    invalidated: Instant,
    /// When the cache was last used.
    used: Instant,
    /// The epoch in which the cache was last used.
    epoch: u64,
}

impl Validity {
    pub(super) fn new(is_interposed: bool) -> Self {
        let now = Instant::now();
        Self {
            now: 1,
            valid_since: 1,
            looked_since: 1,
            is_interposed,
            invalidated: now,
            used: now,
            epoch: 0,
        }
    }

    /// Returns the tick for checks that are made now.
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// Whether a check at the given tick is still valid.
    pub(super) fn covers(&self, checked: u64, is_steady: bool) -> bool {
        checked >= self.valid_since && (is_steady || checked >= self.looked_since)
    }

    /// Makes all checks invalid.
    pub(super) fn invalidate(&mut self) {
        self.now += 1;
        self.valid_since = self.now;
        self.invalidated = Instant::now();
    }

    /// Makes all checks invalid in a new epoch, after a pause, or when they are too old.
    pub(super) fn refresh(&mut self, epoch: u64) {
        let now = Instant::now();
        let is_old = now - self.used >= PAUSE_MAX || now - self.invalidated >= AGE_MAX;
        self.used = now;
        if self.epoch != epoch || is_old {
            self.epoch = epoch;
            self.invalidate();
        }
    }

    /// Starts a look-up. Without interposed calls, the boot learns of no changes, so each look-up checks folders again,
    /// except for steady ones.
    pub(super) fn begin_lookup(&mut self) {
        if !self.is_interposed {
            self.now += 1;
            self.looked_since = self.now;
        }
    }

    /// Undoes an [`invalidate`](Self::invalidate): earlier checks are valid again.
    pub(super) fn restore(&mut self, before: (u64, Instant)) {
        (self.valid_since, self.invalidated) = before;
    }

    /// Returns the state for [`restore`](Self::restore).
    pub(super) fn state(&self) -> (u64, Instant) {
        (self.valid_since, self.invalidated)
    }
}
