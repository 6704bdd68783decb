//! The parts of the project's tasks that the benchmarks (`benches/src`) use too.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a task talks to its developer")]

pub mod command;
pub mod debian;
pub mod published;
pub mod wine;

use std::path::PathBuf;

/// The folder of the workspace in which cargo runs the task. The task may have been compiled in another: a checkout
/// that is copied together with its `target` is not compiled again.
pub fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR");
    let here = here.map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    here.parent().map(PathBuf::from).unwrap_or(here)
}
