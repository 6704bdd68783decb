//! The application of the current folder, which is booted without being served.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;

use super::checks::{Check, State};
use super::ruby::first_line;
use crate::gem::Gem;

const RACKUP: &str = "config.ru";
const NAME: &str = "application";
/// The default limit for a worker's boot. Without a limit, a boot that waits for something would block the check.
const BOOT_TIMEOUT_SECONDS: u64 = 60;
const SEE: &str = "thruway serve shows the whole error";

const SCRIPT: &str = "require 'thruway/thruway'; require 'thruway/cli'; Thruway::CLI.check_up";

/// The name, the state, the finding and the cure, as the gem prints them.
#[derive(Debug, Deserialize)]
struct Finding(String, String, String, Option<String>);

/// Checks the application. Without an application, or without the gem that boots it, there is no check.
pub(super) fn checks() -> Vec<Check> {
    if !Path::new(RACKUP).is_file() {
        return Vec::new();
    }
    let Some(gem) = Gem::find() else { return Vec::new() };
    boot(&gem).unwrap_or_else(|told| vec![Check::broken(NAME, told, SEE)])
}

/// Boots the application in a process group of its own, which is killed after the check.
fn boot(gem: &Gem) -> Result<Vec<Check>, String> {
    let mut ruby = Command::new("ruby");
    for folder in gem.load_path() {
        ruby.arg("-I").arg(folder);
    }
    ruby.args(["-e", SCRIPT]).process_group(0).stdin(Stdio::null());
    ruby.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = ruby.spawn().map_err(|error| format!("cannot start ruby: {error}"))?;
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let output = output_in_time(child);
    if let Some(group) = group {
        // An error means that no process is left.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let output = output?;
    let findings: Vec<Finding> = serde_json::from_slice(&output.stdout)
        .map_err(|_| format!("failed to boot: {}", first_line(&output.stderr)))?;
    Ok(findings.into_iter().map(check).collect())
}

fn output_in_time(child: Child) -> Result<std::process::Output, String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(child.wait_with_output()));
    match receiver.recv_timeout(Duration::from_secs(BOOT_TIMEOUT_SECONDS)) {
        Ok(output) => output.map_err(|error| format!("cannot wait for ruby: {error}")),
        Err(_) => Err(format!("has not booted after {BOOT_TIMEOUT_SECONDS} s")),
    }
}

fn check(Finding(name, state, told, cure): Finding) -> Check {
    let state = match state.as_str() {
        "ok" => State::Works,
        "less" => State::Limited,
        _ => State::Broken,
    };
    let name = if name == NAME { NAME } else { "database pool" };
    Check { name, state, told, cure }
}
