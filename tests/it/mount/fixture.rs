//! A mount in a temporary folder.

use std::cell::Cell;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::{run, stderr, stdout, thruway};
use thruway_testing::skipped;

/// The time after which a test fails, and never a measure. Each wait is for an event.
const PATIENCE: Duration = Duration::from_secs(60);

/// A mount in a temporary folder. Dropping the value removes both.
pub(super) struct Mounted {
    pub(super) folder: TempDir,
    sources: &'static [&'static str],
}

impl Mounted {
    /// Mounts `source` at `target` in a new folder, or reports why this machine cannot.
    pub(super) fn new(arguments: &[&str]) -> Option<Self> {
        Self::with_sources(&["source"], arguments, |_| ())
    }

    /// Mounts the folders with these names, after `fill` has filled them.
    pub(super) fn with_sources(
        sources: &'static [&'static str],
        arguments: &[&str],
        fill: impl FnOnce(&Self),
    ) -> Option<Self> {
        Self::with_sources_in(None, sources, arguments, fill)
    }

    /// Mounts the folders in a new folder below `place` instead of the usual place for temporary files.
    pub(super) fn with_sources_in(
        place: Option<&Path>,
        sources: &'static [&'static str],
        arguments: &[&str],
        fill: impl FnOnce(&Self),
    ) -> Option<Self> {
        if let Err(error) = File::options().read(true).write(true).open("/dev/fuse") {
            skipped(format_args!("/dev/fuse: {error}"));
            return None;
        }
        let folder = place.map_or_else(tempfile::tempdir, tempfile::tempdir_in).unwrap();
        for name in sources.iter().chain(&["target"]) {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let mounted = Self { folder, sources };
        fill(&mounted);
        let output = mounted.mount(arguments);
        if stderr(&output).contains("Operation not permitted") {
            skipped(stderr(&output).trim());
            return None;
        }
        assert!(output.status.success(), "{}", stderr(&output));
        Some(mounted)
    }

    fn mount(&self, arguments: &[&str]) -> Output {
        let log = self.folder.path().join("log");
        let mut command = thruway();
        command.arg("mount").arg("--log").arg(log).args(arguments);
        command.args(self.sources.iter().map(|source| self.path(source)));
        command.arg(self.target("")).output().unwrap()
    }

    /// Unmounts, and mounts again.
    pub(super) fn remount(&self, arguments: &[String]) {
        let unmounted = thruway().arg("unmount").arg(self.target("")).output().unwrap();
        assert!(unmounted.status.success(), "{}", stderr(&unmounted));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let output = self.mount(&arguments);
        assert!(output.status.success(), "{}", stderr(&output));
    }

    /// A path beside the sources.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn source(&self, name: &str) -> PathBuf {
        self.path(self.sources[0]).join(name)
    }

    pub(super) fn target(&self, name: &str) -> PathBuf {
        self.path("target").join(name)
    }

    /// Returns a field of `thruway mount status --json`.
    pub(super) fn status(&self, field: &str) -> serde_json::Value {
        let output = status_of(&self.target(""), &["--json"]);
        assert!(output.status.success(), "{}", stdout(&output));
        field_of(&output, field)
    }

    /// Returns a field of the status, even of a mount with a failure.
    pub(super) fn status_of_any(&self, field: &str) -> serde_json::Value {
        field_of(&status_of(&self.target(""), &["--json"]), field)
    }

    /// Returns the number of requests of this kind.
    pub(super) fn requests(&self, operation: &str) -> u64 {
        self.status("requests")[operation].as_u64().unwrap_or(0)
    }

    /// Returns the number of times that a worker was replaced; `None` while no worker replies.
    pub(super) fn restarts(&self) -> Option<u64> {
        let output = run(&["mount", "status", "--json", self.target("").to_str().unwrap()]);
        let status: serde_json::Value = serde_json::from_str(stdout(&output)).ok()?;
        status["restarts"].as_u64()
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// The mount's processes, the worker last.
    pub(super) fn processes(&self) -> Vec<u32> {
        let source = self.source("");
        let workers = processes_with(&source);
        workers.flat_map(|worker| supervisor(worker).into_iter().chain([worker])).collect()
    }

    pub(super) fn worker(&self) -> u32 {
        *self.processes().last().expect("a worker")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let target = self.target("");
        let _ = thruway().args(["unmount", "--lazy"]).arg(&target).output();
    }
}

/// Runs `thruway mount status` for a mount whose daemon is alive, and waits for the daemon's reply. A daemon that gets
/// no processor for seconds does not reply in time, and the command says so.
pub(super) fn status_of(target: &Path, options: &[&str]) -> Output {
    let reply = Cell::new(None);
    wait_until("the daemon replies", || {
        let output =
            thruway().args(["mount", "status"]).args(options).arg(target).output().unwrap();
        let has_replied = match serde_json::from_slice::<serde_json::Value>(&output.stdout) {
            Ok(status) => status["error"].is_null(),
            Err(_) => !stdout(&output).contains(": does not reply: "),
        };
        reply.set(Some(output));
        has_replied
    });
    reply.take().unwrap()
}

fn field_of(output: &Output, field: &str) -> serde_json::Value {
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    status[field].clone()
}

/// Returns the processes that have this folder open.
fn processes_with(folder: &Path) -> impl Iterator<Item = u32> {
    let folder = folder.to_owned();
    fs::read_dir("/proc").unwrap().flatten().filter_map(move |entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let mut open = fs::read_dir(entry.path().join("fd")).ok()?.flatten();
        open.any(|fd| fs::read_link(fd.path()).is_ok_and(|path| path == folder)).then_some(number)
    })
}

/// Returns the process that started a worker, unless it is dead.
fn supervisor(worker: u32) -> Option<u32> {
    let parent = parent(worker)?;
    let command = fs::read(format!("/proc/{parent}/cmdline")).ok()?;
    command.split(|&byte| byte == 0).any(|word| word == b"mount-process").then_some(parent)
}

/// The number behind the state (proc(5)).
fn parent(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

pub(super) fn kill(process: u32) {
    assert!(Command::new("kill").args(["-9", &process.to_string()]).status().unwrap().success());
}

/// Waits until `is_so`.
pub(super) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "not so after {PATIENCE:?}: {what}");
        sleep(Duration::from_millis(5));
    }
}
