//! A server's counters, for programs.

use crate::engine::Engine;
use crate::exchange::observer;

/// Returns the counters of all workers, as JSON.
#[must_use]
pub fn stats(engine: &Engine) -> String {
    observer::snapshot(&engine.store).json()
}
