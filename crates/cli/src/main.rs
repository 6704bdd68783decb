//! `thruway`: from a name to its bytes with no stops.
//!
//! This is the only crate that prints. Each verb is a file in `verbs/`: its arguments, and a function that runs the
//! verb and returns an exit status.
#![forbid(unsafe_code)]

mod command;
mod gem;
mod output;
mod quantities;
#[cfg(target_os = "linux")]
mod replacement;
mod screen;
#[cfg(target_os = "linux")]
mod units;
mod verbs;

use std::ffi::OsString;
use std::process::ExitCode;

#[cfg(target_os = "linux")]
use output::Failure;
#[cfg(target_os = "linux")]
use thruway_mount::MountRights;
#[cfg(target_os = "linux")]
use verbs::mount::helper::{self, HelperRequest};

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    #[cfg(target_os = "linux")]
    if helper::is_called_by(&arguments) {
        return run_as_mount_helper(&arguments[1..]);
    }
    run(arguments)
}

fn run(arguments: Vec<OsString>) -> ExitCode {
    #[cfg(not(target_os = "linux"))]
    if let Some(failure) = verbs::unsupported_verb(&arguments) {
        return failure.report();
    }
    match verbs::Thruway::parsed(arguments) {
        Ok(command) => command.run().unwrap_or_else(|failure| failure.report()),
        Err(error) => output::usage(error),
    }
}

/// Runs the program under the name `mount.thruway`, with mount(8)'s exit statuses.
#[cfg(target_os = "linux")]
fn run_as_mount_helper(arguments: &[OsString]) -> ExitCode {
    const WRONG_USE: u8 = 1;
    const NOT_MOUNTED: u8 = 32;
    let done = match helper::translate(arguments, MountRights::of_this_process()) {
        Ok(HelperRequest::Mount(arguments)) => match verbs::Thruway::parsed(arguments) {
            Ok(command) => command.run(),
            Err(error) => {
                output::usage(error);
                return ExitCode::from(WRONG_USE);
            }
        },
        Ok(HelperRequest::Remount(remount)) => verbs::mount::remount(&remount),
        Ok(HelperRequest::Nothing) => return ExitCode::SUCCESS,
        Err(message) => {
            return Failure::new(message).hint("thruway help mount").status(WRONG_USE).report();
        }
    };
    done.unwrap_or_else(|failure| failure.status(NOT_MOUNTED).report())
}
