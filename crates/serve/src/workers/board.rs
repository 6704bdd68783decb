//! What the threads of a worker tell its siblings of themselves.

use std::sync::Arc;

use super::load_table::LoadTable;

/// Threads that may compute, or wait.
pub const UNSURE: u32 = u32::MAX;

/// A worker's part of the shared memory, for threads that have no engine in hand. Each call is one store into
/// the worker's own row.
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

    /// So many threads compute, or stand for the interpreter lock to compute; [`UNSURE`] if that would have to be
    /// looked up: a sibling that has something to give asks for that.
    pub fn set_computing(&self, threads: u32) {
        self.table.row(self.index).set_computing(threads);
    }
}
