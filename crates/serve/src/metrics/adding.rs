//! How a number in shared memory is added to.

use std::sync::atomic::{AtomicU64, Ordering};

/// Whether another process may write the number, too.
#[derive(Debug, Clone, Copy)]
pub(super) enum AddMode {
    /// None does. An addition that locks the processor's bus takes as long as the rest of the counting.
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
