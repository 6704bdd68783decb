//! A server's counters, for programs.

use thruway_cache::Store as Cache;
use thruway_cache::store::Purge;

use crate::engine::Engine;
use crate::exchange::observer;

/// Returns the counters of all workers, as JSON.
#[must_use]
pub fn stats(engine: &Engine) -> String {
    observer::snapshot(&engine.store).json()
}

/// Removes the responses that `pattern` names from an engine's cache. Returns how many.
///
/// # Errors
/// There is no cache, or the pattern is none; see [`Purge::parse`].
pub fn purge(engine: &Engine, pattern: &[u8]) -> Result<usize, &'static str> {
    purge_cache(engine.store.cache.as_ref().map(|cache| &*cache.store), pattern)
}

/// The same for a cache that is at hand.
///
/// # Errors
/// As above.
pub fn purge_cache(cache: Option<&Cache>, pattern: &[u8]) -> Result<usize, &'static str> {
    let cache = cache.ok_or("the server has no cache: start it with --cache SIZE")?;
    let mut normal = Vec::new();
    Ok(cache.purge(Purge::parse(pattern, &mut normal)?))
}
