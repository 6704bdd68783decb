//! The loads of all workers, as they are read from outside.

use std::sync::Arc;

use super::board::Board;
use super::load_table::LoadTable;
use crate::metrics::Present;

/// The rows of all workers, to be read.
#[derive(Debug, Clone)]
pub(crate) struct Siblings {
    /// The reader's own.
    index: Option<usize>,
    table: Arc<LoadTable>,
}

impl Siblings {
    pub(super) fn new(index: Option<usize>, table: Arc<LoadTable>) -> Self {
        Self { index, table }
    }

    /// As the worker with that board reads them.
    pub(crate) fn of(board: Board) -> Self {
        Self::new(Some(board.index), board.table)
    }

    /// Returns the load of worker `index` now; none for the reader itself.
    pub(crate) fn present(&self, index: usize) -> Option<Present> {
        (self.index != Some(index)).then(|| self.read(index))
    }

    fn read(&self, index: usize) -> Present {
        let row = self.table.row(index);
        let load = row.load();
        let is_draining = row.is_draining();
        if !load.is_serving && !is_draining {
            return Present::default();
        }
        Present {
            is_serving: load.is_serving,
            is_draining,
            connections: load.connections,
            active: load.active,
            waiting: row.waiting(),
        }
    }
}
