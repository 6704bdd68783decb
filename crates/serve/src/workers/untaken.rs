//! Since when a message waits for a worker: a word of its row that its siblings write, too.

use std::sync::atomic::{AtomicU64, Ordering};

/// A worker that has not looked at a message for so long is stopped, by a debugger or by SIGSTOP, or gets no
/// processor. Its row says what was true before that.
pub(super) const UNTAKEN_US_MAX: u64 = 10_000;

/// A message that the worker has not taken, or that is on its way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Untaken<'a> {
    /// Microseconds; zero is none.
    pub(super) since_us: &'a AtomicU64,
}

impl Untaken<'_> {
    /// A message is about to be sent there.
    pub(super) fn expect(self, now_us: u64) {
        if self.since_us().is_none() {
            self.since_us.store(now_us, Ordering::Relaxed);
        }
    }

    /// Since when it is on its way, or waits.
    pub(crate) fn since_us(self) -> Option<u64> {
        Some(self.since_us.load(Ordering::Relaxed)).filter(|us| *us != 0)
    }

    /// The worker is about to take what was sent, or nothing came after all.
    pub(crate) fn clear(self) {
        if self.since_us().is_some() {
            self.since_us.store(0, Ordering::Relaxed);
        }
    }

    /// Whether the worker has left it for too long.
    pub(super) fn is_left(self, now_us: u64) -> bool {
        self.since_us().is_some_and(|since_us| now_us.saturating_sub(since_us) > UNTAKEN_US_MAX)
    }
}
