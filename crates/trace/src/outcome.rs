//! How a recording was made, and how it ended.

use serde::{Deserialize, Serialize};
use thruway_sys::process::Change;

/// The mechanism that records calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// Code injected into the programs records their calls; the tracer records the rest.
    #[default]
    Stub,
    /// The tracer records every call.
    Ptrace,
}

/// The end of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// How the command ended; `None` if the recording was cut short or the command was attached to.
    pub end: Option<Change>,
    /// The run time of the command, in nanoseconds.
    pub wall_ns: u64,
    /// The number of times a program stopped for the tracer.
    pub stops: u64,
    /// The number of calls that the tracer recorded itself.
    pub traced: u64,
    /// Whether the tracer died before the command ended, so that later calls are missing.
    pub is_cut_short: bool,
}

impl Outcome {
    /// Returns the outcome of a recording without an end, whose last event was at `wall_ns`.
    pub(crate) fn cut_short(wall_ns: u64) -> Self {
        Self { end: None, wall_ns, stops: 0, traced: 0, is_cut_short: true }
    }
}
