//! An engine's part of the cache of responses.

use std::sync::Arc;

use crate::events::slab::EntryId;

/// The cache, and the requests here that wait for the response to another one.
#[derive(Debug)]
pub(crate) struct ResponseCache {
    pub(crate) store: Arc<thruway_cache::Store>,
    /// The number of this worker.
    pub(crate) worker: usize,
    pub(crate) waiting: Vec<WaitingRequest>,
    /// Memory for the next stored response.
    pub(crate) buffer: Vec<u8>,
}

/// A request that waits for the response to another one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitingRequest {
    pub(crate) id: EntryId,
    pub(crate) tag: u64,
    /// Then it asks the application itself.
    pub(crate) until_ms: u64,
}

impl ResponseCache {
    pub(crate) fn new(store: Arc<thruway_cache::Store>, worker: usize) -> Self {
        Self { store, worker, waiting: Vec::new(), buffer: Vec::new() }
    }
}
