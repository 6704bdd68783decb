//! A server's counters, in a machine-readable form.

use thruway_cache::Store as Cache;
use thruway_cache::store::Purge;

use crate::engine::Engine;
use crate::exchange::observer;

/// Returns the counters of all workers, as JSON.
#[must_use]
pub fn stats(engine: &Engine) -> String {
    observer::snapshot(&engine.store).json()
}

/// Removes the responses that match `pattern` from an engine's cache. Returns the number of removed responses.
///
/// # Errors
/// The server has no cache, or the pattern is invalid; see [`Purge::parse`].
pub fn purge(engine: &Engine, pattern: &[u8]) -> Result<usize, &'static str> {
    purge_cache(engine.store.cache.as_ref().map(|cache| &*cache.store), pattern)
}

/// Removes the responses that match `pattern` from `cache`. Returns the number of removed responses.
///
/// # Errors
/// There is no cache, or the pattern is invalid; see [`Purge::parse`].
pub fn purge_cache(cache: Option<&Cache>, pattern: &[u8]) -> Result<usize, &'static str> {
    let cache = cache.ok_or("the server has no cache: start it with --cache SIZE")?;
    let mut normal = Vec::new();
    Ok(cache.purge(Purge::parse(pattern, &mut normal)?))
}
