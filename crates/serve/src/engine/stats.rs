//! What a server has counted, for programs.

use crate::engine::Engine;
use crate::exchange::observer;

/// What all workers have counted, as JSON.
#[must_use]
pub fn stats(engine: &Engine) -> String {
    observer::snapshot(&engine.store).json()
}
