//! The number of writes that libruby has made, to any descriptor. A compiler that warned has written.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The count is exact only for the writes of the calling thread, since other threads may write meanwhile.
struct Writes {
    /// Whether libruby's writes are interposed, so that they can be counted.
    are_interposed: AtomicBool,
    are_counted: AtomicBool,
    count: AtomicU64,
}

static WRITES: Writes = Writes {
    are_interposed: AtomicBool::new(false),
    are_counted: AtomicBool::new(false),
    count: AtomicU64::new(0),
};

/// Records that libruby's writes are interposed.
pub(crate) fn interposed() {
    WRITES.are_interposed.store(true, Ordering::Relaxed);
}

/// Starts to count.
pub(super) fn count() {
    WRITES.are_counted.store(true, Ordering::Relaxed);
}

/// The number of writes since the count started; `None` if writes are not interposed.
pub(super) fn counted() -> Option<u64> {
    let are_interposed = WRITES.are_interposed.load(Ordering::Relaxed);
    are_interposed.then(|| WRITES.count.load(Ordering::Relaxed))
}

/// Counts a write that libruby is about to make.
pub(crate) fn add() {
    if WRITES.are_counted.load(Ordering::Relaxed) {
        WRITES.count.fetch_add(1, Ordering::Relaxed);
    }
}
