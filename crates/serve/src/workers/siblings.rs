//! The loads of all workers, read from outside.

use std::sync::Arc;

use super::board::Board;
use super::load_table::LoadTable;
use crate::metrics::CurrentLoad;

/// A reader of all workers' rows.
#[derive(Debug, Clone)]
pub(crate) struct Siblings {
    /// The worker that the reader itself belongs to.
    index: Option<usize>,
    table: Arc<LoadTable>,
}

impl Siblings {
    pub(super) fn new(index: Option<usize>, table: Arc<LoadTable>) -> Self {
        Self { index, table }
    }

    /// Creates the reader for the worker with the board.
    pub(crate) fn of(board: Board) -> Self {
        Self::new(Some(board.index), board.table)
    }

    /// Returns the current load of worker `index`; none for the reader itself.
    pub(crate) fn current_load(&self, index: usize) -> Option<CurrentLoad> {
        (self.index != Some(index)).then(|| self.read(index))
    }

    fn read(&self, index: usize) -> CurrentLoad {
        let row = self.table.row(index);
        let load = row.load();
        let is_draining = row.is_draining();
        if !load.is_serving && !is_draining {
            return CurrentLoad::default();
        }
        CurrentLoad {
            is_serving: load.is_serving,
            is_draining,
            connections: load.connections,
            active: load.active,
            waiting: row.waiting(),
        }
    }
}
