//! What a benchmark needs to know.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// How `cargo x bench` was asked to measure.
pub(super) struct BenchContext {
    /// The folder of the workspace.
    pub(super) root: PathBuf,
    /// How often each contender runs.
    pub(super) rounds: usize,
    /// How long each load on a server takes.
    pub(super) seconds: f64,
    /// Where peers are, by their names.
    pub(super) peers: BTreeMap<String, PathBuf>,
}
