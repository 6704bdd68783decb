//! The board on which a worker's threads report to its siblings.

use std::sync::Arc;

use super::load_table::LoadTable;

/// The number of computing threads while a worker does not know whether its threads compute.
pub const UNSURE: u32 = u32::MAX;

/// The handle by which a worker's threads report the worker's load to its siblings, without access to the engine. Each
/// call is one store into the worker's own row of the shared memory.
#[derive(Debug, Clone)]
pub struct Board {
    pub(super) table: Arc<LoadTable>,
    pub(super) index: usize,
}

impl Board {
    /// Reports the number of threads that could serve a request and have none.
    pub fn set_free_threads(&self, threads: u32) {
        self.table.row(self.index).set_free_threads(threads);
    }

    /// Reports the number of threads that compute or wait for the interpreter lock; [`UNSURE`] if finding out has a
    /// cost. A sibling with a request to give away then asks.
    pub fn set_computing(&self, threads: u32) {
        self.table.row(self.index).set_computing(threads);
    }

    /// Reports the number of requests that run in fibers and began lately.
    pub fn set_in_fibers(&self, requests: u32) {
        self.table.row(self.index).set_in_fibers(requests);
    }

    /// Reports the monotonic time, in microseconds, at which the fiber that runs was continued; zero if none runs.
    pub fn set_slice(&self, since_us: u64) {
        self.table.row(self.index).set_slice(since_us);
    }
}
