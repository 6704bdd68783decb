//! Records since when a message waits for a worker, in a word of the worker's row that siblings write, too.

use std::sync::atomic::{AtomicU64, Ordering};

/// The time after which a worker with an untaken message counts as stopped: by a debugger, by SIGSTOP, or for lack of a
/// processor. Its row is then out of date.
pub(super) const UNTAKEN_US_MAX: u64 = 10_000;

/// A message that the worker has not taken, or that is on its way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UntakenMessage<'a> {
    /// Microseconds of the monotonic clock; zero without a message.
    pub(super) since_us: &'a AtomicU64,
}

impl UntakenMessage<'_> {
    /// Records that a message is about to be sent, unless one is recorded already.
    pub(super) fn expect(self, now_us: u64) {
        if self.since_us().is_none() {
            self.since_us.store(now_us, Ordering::Relaxed);
        }
    }

    /// When the message was sent, if there is one.
    pub(crate) fn since_us(self) -> Option<u64> {
        Some(self.since_us.load(Ordering::Relaxed)).filter(|us| *us != 0)
    }

    /// Clears the record: the worker is about to take its messages, or none came after all.
    pub(crate) fn clear(self) {
        if self.since_us().is_some() {
            self.since_us.store(0, Ordering::Relaxed);
        }
    }

    /// Whether the worker has left the message untaken for too long.
    pub(super) fn is_overdue(self, now_us: u64) -> bool {
        self.since_us().is_some_and(|since_us| now_us.saturating_sub(since_us) > UNTAKEN_US_MAX)
    }
}
