//! How a recording was made, and how it ended.

use serde::{Deserialize, Serialize};
use thruway_sys::process::Change;

/// How calls are noted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// The programs note their own calls; the tracer sees the rest.
    #[default]
    Stub,
    /// The tracer notes every call.
    Ptrace,
}

/// How a recording ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// How the command ended; unknown if the recording was cut short.
    pub end: Option<Change>,
    /// How long it ran, in nanoseconds.
    pub wall_ns: u64,
    /// How often a program was stopped for the tracer.
    pub stops: u64,
    /// How many calls the tracer noted itself.
    pub traced: u64,
    /// Whether the tracer died before the command's end: later calls are missing.
    pub is_cut_short: bool,
}

impl Outcome {
    /// That of a recording whose end is missing, and whose last event was at `wall_ns`.
    pub(crate) fn cut_short(wall_ns: u64) -> Self {
        Self { end: None, wall_ns, stops: 0, traced: 0, is_cut_short: true }
    }
}
