//! The engine's part of the response cache.

use std::sync::Arc;

use crate::events::slab::EntryId;

/// The response cache, and the engine's requests that wait for another request's response.
#[derive(Debug)]
pub(crate) struct ResponseCache {
    pub(crate) store: Arc<thruway_cache::Store>,
    /// The index of the engine's worker.
    pub(crate) worker: usize,
    pub(crate) waiting: Vec<WaitingRequest>,
    /// A buffer that is reused for each stored response that is read.
    pub(crate) buffer: Vec<u8>,
}

/// A request that waits for another request's response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitingRequest {
    pub(crate) id: EntryId,
    pub(crate) tag: u64,
    /// The time at which the wait ends, and the request goes to the application itself.
    pub(crate) until_ms: u64,
}

impl ResponseCache {
    pub(crate) fn new(store: Arc<thruway_cache::Store>, worker: usize) -> Self {
        Self { store, worker, waiting: Vec::new(), buffer: Vec::new() }
    }
}
