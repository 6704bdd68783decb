//! The board on which a worker's threads report to its siblings.

use std::sync::Arc;

use super::load_table::LoadTable;

/// Threads that may compute, or wait.
pub const UNSURE: u32 = u32::MAX;

/// A worker's part of the shared memory, for threads that hold no engine. Each call is one store into the worker's own
/// row.
#[derive(Debug, Clone)]
pub struct Board {
    pub(super) table: Arc<LoadTable>,
    pub(super) index: usize,
}

impl Board {
    /// So many threads could serve a request, and are in none.
    pub fn set_free_threads(&self, threads: u32) {
        self.table.row(self.index).set_free_threads(threads);
    }

    /// So many threads compute, or wait for the interpreter lock; [`UNSURE`] if that would have to be looked up. A
    /// sibling that has something to give asks for that.
    pub fn set_computing(&self, threads: u32) {
        self.table.row(self.index).set_computing(threads);
    }
}
