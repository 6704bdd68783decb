//! The memory that all workers share.

use std::sync::Arc;

use super::load_table::LoadTable;
use crate::metrics::MetricsTable;
use crate::queue::client_turns::ClientTurns;

/// The tables that all workers share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) table: Arc<LoadTable>,
    pub(super) client_turns: Arc<ClientTurns>,
    pub(super) metrics: Arc<MetricsTable>,
}
