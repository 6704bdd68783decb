//! The context of a benchmark.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::serve::matrix::choice::MatrixChoice;
use super::serve::system_root::SystemRoot;

/// How `cargo x bench` was asked to measure.
#[derive(Default)]
pub(super) struct BenchContext {
    /// The folder of the workspace.
    pub(super) root: PathBuf,
    /// How often each contender runs.
    pub(super) rounds: usize,
    /// How long each load on a server takes.
    pub(super) seconds: f64,
    /// Where peers are, by their names.
    pub(super) peers: BTreeMap<String, PathBuf>,
    /// Other systems, whose servers take part.
    pub(super) roots: Vec<SystemRoot>,
    /// Whether this machine's own servers stay out.
    pub(super) roots_only: bool,
    /// Beginnings of the names of the servers that take part beside thruway; none means all.
    pub(super) servers: Vec<String>,
    /// The parts of the matrix to measure.
    pub(super) matrix: MatrixChoice,
}
