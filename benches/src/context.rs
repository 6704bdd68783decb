//! The context of a benchmark.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::serve::matrix::choice::MatrixChoice;
use super::serve::system_root::SystemRoot;

/// The settings of a run of `cargo x bench`.
#[derive(Default)]
pub(super) struct BenchContext {
    /// The folder of the workspace.
    pub(super) root: PathBuf,
    /// The number of runs of each contender.
    pub(super) rounds: usize,
    /// The duration of each load on a server.
    pub(super) seconds: f64,
    /// The paths of peers, by name.
    pub(super) peers: BTreeMap<String, PathBuf>,
    /// Other systems whose servers and boots take part.
    pub(super) roots: Vec<SystemRoot>,
    /// Whether this machine's own servers are left out.
    pub(super) roots_only: bool,
    /// Prefixes of the names of servers that take part besides thruway; empty for all.
    pub(super) servers: Vec<String>,
    /// The measured parts of the matrix.
    pub(super) matrix: MatrixChoice,
}
