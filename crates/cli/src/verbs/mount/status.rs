//! `thruway mount status`: prints the state of mounts.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use thruway_mount::{Changes, Mode, MountStatus};
use thruway_sys::printable;

use super::failure::failure;
use crate::output::{Answer, print, print_report};

/// Show the state of mounts
///
/// The exit status is 1 if a mount does not reply, a source fails, or the supervisor is dead.
#[derive(Debug, Args)]
pub(super) struct Status {
    /// Print JSON, one object per mount and line
    #[arg(long)]
    json: bool,
    /// The folder of the mount [default: all mounts]
    #[arg(value_name = "TARGET")]
    target: Option<PathBuf>,
}

impl Status {
    pub(super) fn run(self) -> Answer {
        let target = self.target.as_deref().map(thruway_mount::resolve_target).transpose();
        let mounts = thruway_mount::status(target.map_err(failure)?.as_deref()).map_err(failure)?;
        match self.json {
            true => print(json(&mounts).as_bytes())?,
            false => print_report(&mounts.iter().map(text).collect::<String>())?,
        }
        let is_well =
            |mount: &MountStatus| mount.status.as_ref().is_ok_and(|status| status.is_well());
        Ok(if mounts.iter().all(is_well) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Formats each mount as a JSON object on a line.
fn json(mounts: &[MountStatus]) -> String {
    let line = |mount: &MountStatus| match &mount.status {
        Ok(status) => {
            let mut line = serde_json::json!(status);
            // `sources` contains the same as text.
            if let Some(fields) = line.as_object_mut() {
                fields.remove("source_specs");
                fields.insert("version".to_owned(), 1.into());
            }
            line
        }
        Err(error) => {
            let target = mount.target.to_string_lossy();
            serde_json::json!({ "version": 1, "target": target, "error": error })
        }
    };
    mounts.iter().map(|mount| format!("{}\n", line(mount))).collect()
}

fn text(mount: &MountStatus) -> String {
    let target = printable::path(&mount.target);
    let status = match &mount.status {
        Ok(status) => status,
        Err(error) => {
            return format!(
                "{target}: does not reply: {error}\n\nhint: thruway unmount {target}\n"
            );
        }
    };
    let mode = match status.mode {
        Mode::Live => "live",
        Mode::Frozen => "frozen",
    };
    let data = match (status.mode, status.passthrough) {
        (Mode::Frozen, _) => "kept by the kernel",
        (Mode::Live, true) => "moved by the kernel (passthrough)",
        (Mode::Live, false) => "moved by the daemon",
    };
    let mut text = format!("{target}: {mode}\n");
    let mut row = |title: &str, value: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {title:<10} {value}");
    };
    row("sources", &status.sources.join(" "));
    for (source, reason) in &status.failed_sources {
        row("", &format!("{source}: {reason}"));
    }
    for (error, count) in &status.source_errors {
        row("", &format!("{count} requests failed: {error}"));
    }
    if status.is_orphaned {
        row(
            "supervisor",
            "dead: the worker would not be replaced if it ended; mount again when possible",
        );
    }
    if let Some(process) = status.process {
        row("process", &process.to_string());
    }
    row("data", data);
    for (reason, count) in &status.daemon_io_reasons {
        row("", &format!("by the daemon, {count} times: {reason}"));
    }
    if let Some(owners) = &status.owners {
        row("owners", owners);
    }
    if status.follows_links {
        row("links", "to regular files are followed");
    }
    row("changes", changes(status));
    row("transport", &format!("{} (FUSE {})", status.transport, status.protocol));
    row("inodes", &status.inodes.to_string());
    if let Some(rules) = status.rules {
        let refused = status.counts.get("refused_by_policy").unwrap_or(&0);
        row("policy", &format!("{rules} rules; {refused} requests refused"));
    }
    row("restarts", &status.restarts.to_string());
    row("requests", &busiest(&status.requests));
    text
}

fn changes(status: &thruway_mount::Status) -> &'static str {
    match (status.mode, status.changes) {
        (Mode::Frozen, _) => "none (frozen)",
        (Mode::Live, Changes::Told) => "behind the mount are noticed at once",
        (Mode::Live, Changes::Asked) => {
            "behind the mount are noticed at each look-up, which is a request"
        }
        (Mode::Live, Changes::Ignored) => "behind the mount are noticed when the timeouts end",
    }
}

/// Formats the number of requests, and the most frequent operations.
fn busiest(requests: &std::collections::BTreeMap<String, u64>) -> String {
    const SHOWN: usize = 6;
    let mut sorted: Vec<_> = requests.iter().collect();
    sorted.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    let parts: Vec<_> =
        sorted.iter().take(SHOWN).map(|(name, count)| format!("{name} {count}")).collect();
    let sum: u64 = requests.values().sum();
    if parts.is_empty() { sum.to_string() } else { format!("{sum} ({})", parts.join(", ")) }
}
