//! Starts commands by name.
//!
//! [`Command`] is built like `std::process::Command` but makes stronger promises. The rules of the search are a
//! value ([`Rules`]). After a candidate that cannot be started, the search continues where the rules say so. A single
//! new process tries all candidates, and an error lists each candidate. Arguments never pass through a shell.
//!
//! Reading order: `command`, `start`, `linux` and `windows` with the calls of the system, `command_line` with the
//! quoting for Windows and its batch files, `child`, `error`.
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
