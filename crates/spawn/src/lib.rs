//! Starts a command by its name.
//!
//! [`Command`] is built like `std::process::Command` but makes stronger promises. The rules by which the
//! program is found are a value ([`Rules`]). If a candidate cannot be started, the next one is tried where
//! the rules say so. A single new process tries all candidates, and an error lists each of them. Arguments
//! never pass through a shell.
//!
//! Reading order: `command`, `start`, then `linux` and `windows`, which call the system (the latter with
//! `command_line`, where batch files are made safe), `child`, `error`.
#![forbid(unsafe_code)]

mod child;
mod command;
#[cfg(any(windows, test))]
mod command_line;
mod environment;
mod error;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(all(unix, not(target_os = "linux")))]
mod posix;
mod start;
mod stdio;
#[cfg(windows)]
mod windows;

pub use child::{Child, Output};
pub use command::{Command, variables_of};
pub use error::{Error, TriedCandidate};
pub use stdio::Stdio;
pub use thruway_resolve::search::Rules;

/// Compiles and runs the examples of the README.
#[cfg(all(doctest, unix))]
#[doc = include_str!("../README.md")]
struct Readme;
