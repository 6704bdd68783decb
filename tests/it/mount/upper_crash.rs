//! Kills of the worker before each system call with which it changes an upper source.
//!
//! After each kill, a new mount shows the files as they were before the change or as they are after it, and nothing is
//! left in the work folder.

use std::cell::RefCell;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use thruway_testing::skipped;

use super::fixture::{Mounted, kill, status_of, wait_until};
use super::upper::tree;
use crate::{stderr, thruway};

/// The system calls that change files, by strace's names. A system call that a processor lacks is ignored.
const CALLS: [&str; 17] = [
    "?chmod",
    "copy_file_range",
    "fchmodat",
    "fchownat",
    "fsetxattr",
    "fsync",
    "ftruncate",
    "linkat",
    "mkdirat",
    "mknodat",
    "openat",
    "pwrite64",
    "renameat2",
    "setxattr",
    "symlinkat",
    "unlinkat",
    "utimensat",
];

/// The kills of a system call that are tried. A change needs fewer calls of each kind.
const KILLS_MAX: u32 = 40;

type Change = fn(&Path) -> std::io::Result<()>;

/// A folder with a lower source, an upper source and a mount of both.
struct Layers {
    folder: tempfile::TempDir,
}

impl Layers {
    /// Fills a lower source and mounts it, or reports why this machine cannot.
    fn new() -> Option<Self> {
        drop(Mounted::new(&[])?);
        let layers = Self { folder: tempfile::tempdir().unwrap() };
        for name in ["lower/folder/below", "upper", "target"] {
            fs::create_dir_all(layers.path(name)).unwrap();
        }
        for name in ["file", "other", "folder/file", "folder/below/file"] {
            fs::write(layers.path("lower").join(name), name.repeat(1000)).unwrap();
        }
        let file = layers.path("lower/folder/file");
        rustix::fs::setxattr(&file, "user.note", b"kept", rustix::fs::XattrFlags::empty()).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        symlink("file", layers.path("lower/folder/link")).unwrap();
        layers.mount();
        Some(layers)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn mount(&self) {
        let mut command = thruway();
        command.args(["mount", "--log"]).arg(self.path("log"));
        command.arg("--upper").args(["upper", "lower", "target"].map(|name| self.path(name)));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
    }

    fn unmount(&self) {
        let output = thruway().args(["unmount", "--force"]).arg(self.path("target")).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
    }

    /// Kills the supervisor, so that no other worker goes on with the change, and returns the worker.
    fn worker_alone(&self) -> u32 {
        let status = status_of(&self.path("target"), &["--json"]);
        let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
        let supervisor = &status["process"];
        let children = format!("/proc/{supervisor}/task/{supervisor}/children");
        let worker = fs::read_to_string(children).unwrap().trim().parse().unwrap();
        kill(u32::try_from(supervisor.as_u64().unwrap()).unwrap());
        worker
    }

    fn tree(&self) -> String {
        tree(&self.path("target"))
    }

    /// Whether the work folder is empty.
    fn has_empty_work_folder(&self) -> bool {
        let names = fs::read_dir(self.folder.path()).unwrap().flatten();
        let is_work =
            |entry: &fs::DirEntry| entry.file_name().to_string_lossy().ends_with(".thruway-work");
        names.filter(is_work).all(|work| fs::read_dir(work.path()).unwrap().count() == 0)
    }
}

impl Drop for Layers {
    fn drop(&mut self) {
        let _ = thruway().args(["unmount", "--force"]).arg(self.path("target")).output();
    }
}

/// Attaches strace to the worker with these arguments; reports why it cannot.
fn strace(worker: u32, arguments: &[&str]) -> Option<Child> {
    let mut strace = Command::new("strace");
    strace.arg("-f").args(arguments).args(["-p", &worker.to_string()]).stderr(Stdio::piped());
    let mut child = strace.spawn().expect("scripts/setup installs it");
    let mut said = String::new();
    let mut lines = BufReader::new(child.stderr.as_mut().unwrap());
    lines.read_line(&mut said).unwrap();
    if said.contains("attached") {
        return Some(child);
    }
    child.wait().unwrap();
    skipped(said.trim());
    None
}

/// Lets strace kill the worker before a thread makes its call number `number` of this kind.
pub(super) fn kill_before(worker: u32, call: &str, number: u32) -> Option<Child> {
    let inject = format!("inject={call}:signal=KILL:when={number}");
    strace(worker, &["-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &inject])
}

/// Applies the change, and returns the calls of [`CALLS`] that the worker made.
fn calls_of(layers: &Layers, change: Change) -> Option<Vec<&'static str>> {
    let record = layers.path("calls");
    let trace = format!("trace={}", CALLS.join(","));
    let worker = layers.worker_alone();
    let mut strace = strace(worker, &["-o", record.to_str().unwrap(), "-e", &trace])?;
    change(&layers.path("target")).unwrap();
    // At SIGTERM, strace writes the last lines.
    let ended = Command::new("kill").arg(strace.id().to_string()).status();
    assert!(ended.unwrap().success());
    strace.wait().unwrap();
    let lines = fs::read_to_string(record).unwrap();
    let is_made = |call: &&str| lines.contains(&format!(" {}(", call.trim_start_matches('?')));
    Some(CALLS.into_iter().filter(is_made).collect())
}

/// Applies the change once without a kill, and once with a kill before each call that it makes.
fn is_whole_after_each_kill(change: Change) {
    let Some(layers) = Layers::new() else { return };
    let before = layers.tree();
    let Some(calls) = calls_of(&layers, change) else { return };
    let after = layers.tree();
    assert_ne!(before, after);
    drop(layers);
    let (mut kills, mut old, mut new) = (0, 0, 0);
    for call in calls {
        for number in 1..=KILLS_MAX {
            let Some(layers) = Layers::new() else { return };
            let worker = layers.worker_alone();
            let Some(strace) = kill_before(worker, call, number) else { return };
            let strace = RefCell::new(strace);
            let is_done = change(&layers.path("target")).is_ok();
            let is_alive = fs::read_link(format!("/proc/{worker}/exe")).is_ok();
            if is_done && is_alive {
                let mut strace = strace.borrow_mut();
                strace.kill().and_then(|()| strace.wait()).unwrap();
                break;
            }
            wait_until("strace ends with the worker", || {
                strace.borrow_mut().try_wait().unwrap().is_some()
            });
            let target = layers.path("target");
            wait_until("the connection is gone", || fs::read_dir(&target).is_err());
            layers.unmount();
            layers.mount();
            let tree = layers.tree();
            let place = format!("killed before call {number} of {call}");
            assert!(tree == before || tree == after, "{place}:\n{tree}");
            assert!(layers.has_empty_work_folder(), "{place}");
            (kills, old, new) =
                (kills + 1, old + u32::from(tree == before), new + u32::from(tree == after));
            // The mount can be used: the change is made now, or again.
            let _ = change(&target);
            assert!(layers.tree() == after || tree == after, "{place}, then changed");
            assert!(number < KILLS_MAX, "{place}");
        }
    }
    println!("{kills} kills: {old} times before the change, {new} times after it");
    assert!(kills >= 2 && old > 0, "{kills} kills");
}

#[test]
fn a_file_that_is_changed_is_old_or_new() {
    is_whole_after_each_kill(|target| {
        let mut options = fs::OpenOptions::new();
        options.append(true).open(target.join("folder/file"))?.write_all(b"end")
    });
}

#[test]
fn a_mode_that_is_changed_is_old_or_new() {
    is_whole_after_each_kill(|target| {
        fs::set_permissions(target.join("folder/below/file"), Permissions::from_mode(0o600))
    });
}

#[test]
fn a_name_that_is_removed_is_there_or_hidden() {
    is_whole_after_each_kill(|target| fs::remove_file(target.join("folder/file")));
}

#[test]
fn a_file_that_is_renamed_has_its_old_name_or_its_new_one() {
    is_whole_after_each_kill(|target| fs::rename(target.join("folder/file"), target.join("other")));
}

#[test]
fn a_link_that_is_changed_is_old_or_new() {
    is_whole_after_each_kill(|target| {
        std::os::unix::fs::lchown(target.join("folder/link"), Some(1000), Some(1000))
    });
}
