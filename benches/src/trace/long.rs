//! A recording of ten million calls of one program: the memory of the recorder during the recording, and the time of
//! the report.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::measure::wall;
use crate::table::{Table, at_most};

/// About a million different names, each looked up ten times; few of them exist.
const PROGRAM: &str =
    "10_000_000.times { |i| File.exist?(\"/usr/lib/#{i % 100}/feature#{i % 9973}.rb\") }";
const RESIDENT_MAX_MB: f64 = 200.0;
const REPORT_MAX_S: f64 = 10.0;

pub(super) fn run(thruway: &str, folder: &Path) -> Result<String, String> {
    let recording = folder.join("long.jsonl");
    let mut table = Table::new(
        "Ten million calls, really made by a Ruby program, on a million names",
        &["", "s", "resident at most, MB", "file, MB"],
    );
    let mut record = Command::new(thruway);
    record.args(["trace", "-o"]).arg(&recording).args(["--", "ruby", "-e", PROGRAM]);
    let start = Instant::now();
    let resident_mb = most_resident_mb(&mut record)?;
    let recorded_s = start.elapsed().as_secs_f64();
    let bytes = fs::metadata(&recording).map_or(0, |metadata| metadata.len());
    let file_mb = format!("{:.0}", bytes as f64 / 1e6);
    let cells = [format!("{recorded_s:.1}"), format!("{resident_mb:.0}"), file_mb];
    table.row("recording with `-o`", &cells);
    let mut report = Command::new(thruway);
    let report_s = wall(report.args(["trace", "--from"]).arg(&recording))?.as_secs_f64();
    let read_mb = most_resident_mb(&mut report)?;
    table.row(
        "report with `--from`",
        &[format!("{report_s:.1}"), format!("{read_mb:.0}"), String::new()],
    );
    table.target("recording ≤ 200 MB resident", at_most(Some(resident_mb), RESIDENT_MAX_MB));
    table.target("report ≤ 10 s", at_most(Some(report_s), REPORT_MAX_S));
    fs::remove_file(&recording).map_err(|error| format!("{}: {error}", recording.display()))?;
    Ok(table.text())
}

/// Runs a program, and returns its highest resident memory, as counted by the kernel.
fn most_resident_mb(command: &mut Command) -> Result<f64, String> {
    let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = quiet.spawn().map_err(|error| format!("cannot start {command:?}: {error}"))?;
    let mut most = 0.0;
    while child.try_wait().map_err(|error| error.to_string())?.is_none() {
        most = resident_mb(&child).unwrap_or(most);
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(most)
}

/// The maximum resident memory of the program so far, in MB; `None` once the program has ended.
fn resident_mb(child: &Child) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse::<f64>().ok().map(|kilobytes| kilobytes / 1024.0)
}
