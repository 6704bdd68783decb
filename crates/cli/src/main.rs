//! `thruway`: from a name to its bytes with no stops.
//!
//! The only crate that prints. Each verb is a file in `verbs/`: its arguments, and a function that
//! runs it and answers with an exit status.
#![forbid(unsafe_code)]

mod output;
mod verbs;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let command = verbs::Thruway::parse();
    command.run().unwrap_or_else(|failure| failure.report())
}
