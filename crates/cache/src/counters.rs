//! The figures of a cache, shared by all processes.

use std::io;
use std::sync::atomic::Ordering::Relaxed;

use thruway_sys::shared_memory::Anonymous;

/// A counted event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// A fresh response was sent.
    Hits,
    /// No stored response answered a request that the cache could have answered.
    Misses,
    /// A stale response was sent.
    Stale,
    /// The application confirmed a stored response.
    Revalidated,
    /// A request waited for the response to another request.
    Collapsed,
    /// A response was stored.
    Stored,
    /// A response was overwritten for want of room.
    Evicted,
    /// A response was removed by a purge.
    Purged,
    /// A stored page was invalidated by a request that may have changed it.
    Invalidated,
}

/// The number of counters.
const COUNTERS: usize = 9;

/// The words from one counter to the next: each has its own cache line.
const STRIDE: usize = 8;

/// The counters.
#[derive(Debug)]
pub(crate) struct Counters(Anonymous);

/// All counters, and the contents of the cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    pub(crate) counts: [u64; COUNTERS],
    /// The number of stored responses.
    pub items: u64,
    /// The bytes of stored responses.
    pub bytes: u64,
    /// The capacity of the cache in bytes.
    pub bytes_max: u64,
}

impl Counter {
    /// All counters, with their names in metrics.
    pub const ALL: [(Self, &'static str); COUNTERS] = [
        (Self::Hits, "hits"),
        (Self::Misses, "misses"),
        (Self::Stale, "stale"),
        (Self::Revalidated, "revalidated"),
        (Self::Collapsed, "collapsed"),
        (Self::Stored, "stored"),
        (Self::Evicted, "evicted"),
        (Self::Purged, "purged"),
        (Self::Invalidated, "invalidated"),
    ];
}

impl Counters {
    pub(crate) fn new() -> io::Result<Self> {
        Anonymous::new(COUNTERS * STRIDE).map(Self)
    }

    pub(crate) fn add(&self, counter: Counter, count: u64) {
        self.0[counter as usize * STRIDE].fetch_add(count, Relaxed);
    }

    pub(crate) fn read(&self) -> Totals {
        let counts = std::array::from_fn(|at| self.0[at * STRIDE].load(Relaxed));
        Totals { counts, ..Totals::default() }
    }
}

impl Totals {
    /// Returns one count.
    #[must_use]
    pub fn count(&self, counter: Counter) -> u64 {
        self.counts[counter as usize]
    }
}
