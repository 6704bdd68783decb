//! `thruway mount where` and `thruway mount move`: show the sources of files, and move files between sources.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use thruway_mount::{MoveRequest, PlannedMove};
use thruway_sys::printable;

use super::failure::failure;
use crate::output::{Answer, Failure, print, print_report};
use crate::quantities::days;

/// Show which sources contain a file
///
/// Prints the file's path in each source that contains it, one per line. The mount shows the first.
#[derive(Debug, Args)]
pub(super) struct Where {
    /// Print JSON, one object per file
    #[arg(long)]
    json: bool,
    /// Files and folders of mounts
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
}

/// Move files between the sources of a mount
///
/// Lists the files to move, those that were modified longest ago first, and moves nothing without --apply. Programs can
/// use a file while it moves, but a file that is open for writing is not moved. The exit status is 1 if a file could
/// not be moved.
#[derive(Debug, Args)]
pub(super) struct Move {
    /// Move the files instead of listing them
    #[arg(long)]
    apply: bool,
    /// Move files from this source [default: all sources except --to]
    #[arg(long, value_name = "SOURCE")]
    from: Vec<PathBuf>,
    /// Move files to this source while it has room [default: the source that is least full]
    #[arg(long, value_name = "SOURCE")]
    to: Vec<PathBuf>,
    /// Only files that have not been modified for this many days
    #[arg(long, value_name = "TIME", value_parser = days)]
    older_than: Option<Duration>,
    /// Only files that take up more space than this
    #[arg(long, value_name = "BYTES", value_parser = thruway_mount::parse_bytes)]
    larger_than: Option<u64>,
    /// Only files that take up less space than this
    #[arg(long, value_name = "BYTES", value_parser = thruway_mount::parse_bytes)]
    smaller_than: Option<u64>,
    /// Stop when the source that files leave is filled to this percentage
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    until_fill: Option<f64>,
    /// Move files from the fullest to the emptiest source, until all are equally full
    #[arg(long)]
    balance: bool,
    /// The folder of the mount
    #[arg(value_name = "TARGET")]
    target: PathBuf,
}

impl Where {
    pub(super) fn run(self) -> Answer {
        for path in &self.paths {
            let copies = thruway_mount::locate(path).map_err(failure)?;
            if self.json {
                let copies: Vec<_> = copies.iter().map(|copy| copy.to_string_lossy()).collect();
                let path = path.to_string_lossy();
                let line = serde_json::json!({ "version": 1, "path": path, "copies": copies });
                print(format!("{line}\n").as_bytes())?;
            } else {
                let lines = copies.iter().map(|copy| format!("{}\n", printable::path(copy)));
                print_report(&lines.collect::<String>())?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Move {
    pub(super) fn run(self) -> Answer {
        if !self.balance && self.from.is_empty() && self.to.is_empty() {
            return Err(Failure::new("no source to move files from or to")
                .hint("give --from, --to or --balance; thruway help mount move"));
        }
        let target = thruway_mount::resolve_target(&self.target).map_err(failure)?;
        let request = MoveRequest {
            from: absolute(&self.from)?,
            to: absolute(&self.to)?,
            older_than: self.older_than,
            larger_than: self.larger_than,
            smaller_than: self.smaller_than,
            until_fill: self.until_fill,
            is_balance: self.balance,
        };
        let planned = thruway_mount::plan_moves(&target, &request).map_err(failure)?;
        if self.apply {
            return apply(&target, &planned);
        }
        let mut text: String = planned.iter().map(line).collect();
        text.push_str(&sum("would be moved", &planned.iter().collect::<Vec<_>>()));
        print_report(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn apply(target: &Path, planned: &[PlannedMove]) -> Answer {
    let mut moved = Vec::new();
    for planned in planned {
        match thruway_mount::move_file(target, planned) {
            Ok(()) => {
                print_report(&line(planned))?;
                moved.push(planned);
            }
            Err(errno) => {
                let reason = thruway_mount::move_error(errno);
                let name = planned.names.first().cloned().unwrap_or_default();
                print_report(&format!("{} stays: {reason}\n", printable::path(&name)))?;
            }
        }
    }
    let is_complete = moved.len() == planned.len();
    print_report(&sum("moved", &moved))?;
    Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn line(planned: &PlannedMove) -> String {
    let names: Vec<_> = planned.names.iter().map(|name| printable::path(name)).collect();
    let (from, to) = (printable::path(&planned.from), printable::path(&planned.to));
    format!("{}: {from} -> {to}\n", names.join(" = "))
}

fn sum(what: &str, all: &[&PlannedMove]) -> String {
    let bytes: u64 = all.iter().map(|planned| planned.bytes).sum();
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{} files, {bytes} bytes {what}", all.len());
    text
}

fn absolute(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let one = |path: &PathBuf| {
        let spec = super::sources::spec(path.as_os_str())?;
        Ok(spec.path)
    };
    paths.iter().map(one).collect()
}

fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("not a percentage from 0 to 100".into()),
    }
}
