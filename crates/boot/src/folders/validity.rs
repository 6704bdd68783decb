//! For how long what was seen of a folder counts.

use std::time::{Duration, Instant};

/// After a pause of this length nothing counts any more. This process may have been told of a change in a way that
/// is not seen (a file, a library of C). A boot makes no such pause.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Without a pause, what was seen counts for this long.
const AGE_MAX: Duration = Duration::from_secs(30);

/// A clock that ticks when something may have changed.
#[derive(Debug)]
pub(super) struct Validity {
    /// Counts the invalidations.
    now: u64,
    /// What was checked at a smaller number is not valid any more.
    valid_since: u64,
    /// Nor is it, at a number smaller than this, in a folder that is not steady.
    looked_since: u64,
    /// Whether it is told what this process does and hears. Else each look-up is one of its own for such folders.
    is_told: bool,
    /// When `valid_since` was set.
    invalidated: Instant,
    /// When anything was asked last.
    asked: Instant,
    /// The epoch when anything was asked last.
    epoch: u64,
}

impl Validity {
    pub(super) fn new(is_told: bool) -> Self {
        let now = Instant::now();
        Self {
            now: 1,
            valid_since: 1,
            looked_since: 1,
            is_told,
            invalidated: now,
            asked: now,
            epoch: 0,
        }
    }

    /// What is checked now gets this number.
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// Whether what was checked at that number still counts.
    pub(super) fn covers(&self, checked: u64, is_steady: bool) -> bool {
        checked >= self.valid_since && (is_steady || checked >= self.looked_since)
    }

    /// Nothing that was checked counts any more.
    pub(super) fn invalidate(&mut self) {
        self.now += 1;
        self.valid_since = self.now;
        self.invalidated = Instant::now();
    }

    /// Invalidates everything in a new epoch, after a pause, or if it was checked long ago.
    pub(super) fn ask(&mut self, epoch: u64) {
        let now = Instant::now();
        let is_old = now - self.asked >= PAUSE_MAX || now - self.invalidated >= AGE_MAX;
        self.asked = now;
        if self.epoch != epoch || is_old {
            self.epoch = epoch;
            self.invalidate();
        }
    }

    /// Begins a look-up: where nothing is told, what was checked for others does not count for it.
    pub(super) fn begin_lookup(&mut self) {
        if !self.is_told {
            self.now += 1;
            self.looked_since = self.now;
        }
    }

    /// Undoes an [`invalidate`](Self::invalidate): what was checked before it is valid again.
    pub(super) fn restore(&mut self, before: (u64, Instant)) {
        (self.valid_since, self.invalidated) = before;
    }

    /// For [`restore`](Self::restore).
    pub(super) fn state(&self) -> (u64, Instant) {
        (self.valid_since, self.invalidated)
    }
}
