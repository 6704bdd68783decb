//! Starts a command by its name.
//!
//! [`Command`] is built as `std::process::Command` is, and differs in what it promises. Whose rules
//! find the program is a value ([`Rules`]). A program that cannot be started makes way for the next
//! candidate where those rules say so. One new process tries them all, and an error knows every
//! candidate that was tried. Arguments never meet a shell.
//!
//! Reading order: `command`, `start`, then `linux` and `windows`, which hand it to the system (the latter with
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
pub use error::{Error, Tried};
pub use stdio::Stdio;
pub use thruway_resolve::search::Rules;

/// The examples of the README are compiled and run.
#[cfg(all(doctest, unix))]
#[doc = include_str!("../README.md")]
struct Readme;
