//! The additions to numbers in shared memory.

use std::sync::atomic::{AtomicU64, Ordering};

/// Whether another process may write to the number, too.
#[derive(Debug, Clone, Copy)]
pub(super) enum AddMode {
    /// No other process writes. An atomic addition takes as long as the rest of the counting.
    Alone,
    /// A worker that is being replaced still counts.
    Beside,
}

impl AddMode {
    pub(super) fn add(self, word: &AtomicU64, more: u64) {
        match self {
            Self::Alone => word.store(word.load(Ordering::Relaxed) + more, Ordering::Relaxed),
            Self::Beside => drop(word.fetch_add(more, Ordering::Relaxed)),
        }
    }
}
