//! `thruway doctor`: what works on this machine, and the cure for what does not.

#[cfg(target_os = "linux")]
mod application;
#[cfg(target_os = "linux")]
mod certificates;
mod checks;
#[cfg(target_os = "linux")]
mod kernel;
#[cfg(not(target_os = "linux"))]
#[path = "kernel/none.rs"]
mod kernel;
mod ruby;

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::output::{Answer, print, print_report};
use checks::{Check, State};

/// Check what works on this machine, and show how to fix what does not
///
/// Where possible, a check tries the feature itself. The exit status is 1 if a check fails.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl Doctor {
    pub(crate) fn run(self) -> Answer {
        let mut found = ruby::checks();
        found.extend(kernel::checks());
        #[cfg(target_os = "linux")]
        found.extend(certificates::checks());
        #[cfg(target_os = "linux")]
        found.extend(application::checks());
        match self.json {
            true => print(document(&found).as_bytes())?,
            false => print_report(&report(&found))?,
        }
        let is_well = found.iter().all(|check| check.state != State::Broken);
        Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }
}

/// Prints a line for each check, with the cure below.
fn report(checks: &[Check]) -> String {
    let lines = checks.iter().map(|check| {
        let line = format!("{:<6} {:<18}  {}\n", check.state.word(), check.name, check.told);
        let cure = check.cure.iter().map(|cure| format!("{:27}cure: {cure}\n", ""));
        cure.fold(line, |line, cure| line + &cure)
    });
    lines.collect()
}

fn document(checks: &[Check]) -> String {
    let checks: Vec<_> = checks
        .iter()
        .map(|check| {
            json!({ "name": check.name, "state": check.state.word(), "told": check.told,
                    "cure": check.cure })
        })
        .collect();
    format!("{:#}\n", json!({ "version": 1, "checks": checks }))
}
