//! `thruway`: from a name to its bytes with no stops.
//!
//! The only crate that prints. Each verb is a file in `verbs/`: its arguments, and a function that
//! runs it and answers with an exit status.
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
mod gem;
mod output;
#[cfg(target_os = "linux")]
mod units;
mod verbs;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use output::Failure;
#[cfg(target_os = "linux")]
use verbs::mount::helper;

fn main() -> ExitCode {
    match arguments() {
        Ok(arguments) => run(arguments),
        Err(message) => Failure::new(message).hint("thruway help mount").report(),
    }
}

fn run(arguments: Vec<OsString>) -> ExitCode {
    match verbs::Thruway::try_parse_from(arguments) {
        Ok(command) => command.run().unwrap_or_else(|failure| failure.report()),
        Err(error) => output::usage(&error),
    }
}

/// Our arguments. Under the name `mount.thruway` they are those of a mount helper.
fn arguments() -> Result<Vec<OsString>, String> {
    let arguments: Vec<_> = std::env::args_os().collect();
    #[cfg(target_os = "linux")]
    if helper::is_called_by(&arguments) {
        return helper::translate(&arguments[1..]);
    }
    Ok(arguments)
}
