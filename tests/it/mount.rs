//! `thruway mount`, as root on a machine with `/dev/fuse`; elsewhere these tests say so and pass.

#[cfg(test)]
mod bypasses;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod data;
#[cfg(test)]
mod differential;
#[cfg(test)]
mod failures;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod flags;
#[cfg(test)]
mod freshness;
#[cfg(test)]
mod fstab;
#[cfg(test)]
mod groups;
#[cfg(test)]
mod handles;
#[cfg(test)]
mod links;
#[cfg(test)]
mod locks;
#[cfg(test)]
mod media_day;
#[cfg(test)]
mod media_model;
#[cfg(test)]
mod moves;
#[cfg(test)]
mod owners;
#[cfg(test)]
mod parts;
#[cfg(test)]
mod policy;
#[cfg(test)]
mod policy_model;
#[cfg(test)]
mod rights;
#[cfg(test)]
mod ring;
#[cfg(test)]
mod semantics;
#[cfg(test)]
mod several;
#[cfg(test)]
mod sources;
#[cfg(test)]
mod submounts;
#[cfg(test)]
mod union;
#[cfg(test)]
mod upper;
#[cfg(test)]
mod upper_crash;
#[cfg(test)]
mod users;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Command;
use std::thread;

use fixture::{Mounted, kill, status_of, wait_until};
use thruway_testing::skipped;

use crate::{run, stderr, stdout, thruway};

#[test]
fn what_is_written_through_the_mount_is_in_the_source() {
    let Some(mounted) = Mounted::new(&[]) else { return };
    fs::create_dir(mounted.target("folder")).unwrap();
    fs::write(mounted.target("folder/file"), "text").unwrap();
    assert_eq!(fs::read_to_string(mounted.source("folder/file")).unwrap(), "text");
    let mut file = OpenOptions::new().append(true).open(mounted.target("folder/file")).unwrap();
    file.write_all(b" and more").unwrap();
    assert_eq!(fs::read_to_string(mounted.source("folder/file")).unwrap(), "text and more");
    fs::rename(mounted.target("folder/file"), mounted.target("renamed")).unwrap();
    fs::hard_link(mounted.target("renamed"), mounted.target("linked")).unwrap();
    symlink("renamed", mounted.target("symlink")).unwrap();
    let ours = fs::metadata(mounted.target("symlink")).unwrap();
    let theirs = fs::metadata(mounted.source("linked")).unwrap();
    assert_eq!((ours.ino(), ours.nlink(), ours.len()), (theirs.ino(), 2, 13));
    fs::remove_dir(mounted.target("folder")).unwrap();
    fs::remove_file(mounted.target("linked")).unwrap();
    let mut names: Vec<_> = fs::read_dir(mounted.source("")).unwrap().flatten().collect();
    names.sort_by_key(fs::DirEntry::file_name);
    assert_eq!(
        names.iter().map(fs::DirEntry::file_name).collect::<Vec<_>>(),
        ["renamed", "symlink"]
    );
}

#[test]
fn a_frozen_mount_is_read_only_and_opens_never_reach_the_daemon() {
    let Some(mounted) = Mounted::new(&["--frozen"]) else { return };
    let text = "text".repeat(100_000);
    fs::write(mounted.source("file"), &text).unwrap();
    for _ in 0..10 {
        assert_eq!(fs::read_to_string(mounted.target("file")).unwrap(), text);
    }
    // The first open tells the kernel not to ask again.
    assert_eq!(mounted.requests("open"), 1);
    assert_eq!(fs::write(mounted.target("other"), "").unwrap_err().raw_os_error(), Some(30));
}

#[test]
fn a_worker_that_dies_takes_nothing_with_it() {
    let Some(mounted) = Mounted::new(&[]) else { return };
    fs::create_dir(mounted.target("folder")).unwrap();
    fs::write(mounted.target("folder/file"), "before").unwrap();
    let mut open =
        OpenOptions::new().read(true).write(true).open(mounted.target("folder/file")).unwrap();
    let before = open.metadata().unwrap();
    kill(mounted.worker());
    open.write_all_at(b"after!", 0).unwrap();
    assert_eq!(open.metadata().unwrap().ino(), before.ino());
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "after!");
    fs::write(mounted.target("folder/other"), "new").unwrap();
    assert_eq!(fs::read_dir(mounted.target("folder")).unwrap().count(), 2);
    assert_eq!(mounted.status("restarts"), 1);
    assert!(mounted.log().contains("the worker died (signal: 9 (SIGKILL))"), "{}", mounted.log());
}

#[test]
fn a_mount_whose_processes_were_killed_is_taken_away() {
    let Some(mounted) = Mounted::new(&[]) else { return };
    let processes = mounted.processes();
    assert_eq!(processes.len(), 2);
    // The supervisor is killed first, because it would start another worker.
    processes.into_iter().for_each(kill);
    let target = mounted.target("");
    wait_until("the connection is gone", || fs::read_dir(&target).is_err());
    let status = thruway().args(["mount", "status"]).arg(&target).output().unwrap();
    assert!(stdout(&status).contains("does not reply"), "{}", stdout(&status));
    assert_eq!(status.status.code(), Some(1));
    let unmount = thruway().arg("unmount").arg(&target).output().unwrap();
    assert!(unmount.status.success(), "{}", stderr(&unmount));
    assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
}

#[test]
fn a_mount_whose_supervisor_is_dead_says_so() {
    let Some(mounted) = Mounted::new(&[]) else { return };
    let processes = mounted.processes();
    kill(processes[1]);
    wait_until("it is in the log", || {
        let log = mounted.log();
        let (time, line) = log.split_once(' ').unwrap_or_default();
        let is_time = time.len() == 20 && time.ends_with('Z');
        is_time && line.starts_with(&format!("error {}", mounted.path("target").display()))
    });
    wait_until("another worker serves", || mounted.restarts() == Some(1));
    let processes = mounted.processes();
    kill(processes[0]);
    let status = || status_of(&mounted.target(""), &["--json"]);
    wait_until("it is known", || stdout(&status()).contains("\"is_orphaned\":true"));
    let said: serde_json::Value = serde_json::from_str(stdout(&status())).unwrap();
    assert_eq!(said["process"], processes[1]);
    assert_eq!(status().status.code(), Some(1));
    assert!(thruway().arg("unmount").arg(mounted.target("")).status().unwrap().success());
    wait_until("the worker is gone", || mounted.processes().is_empty());
}

#[test]
fn a_worker_that_is_stopped_does_not_outlive_its_mount() {
    let Some(mounted) = Mounted::new(&[]) else { return };
    let stop = Command::new("kill").args(["-STOP", &mounted.worker().to_string()]).status();
    assert!(stop.unwrap().success());
    let unmount = thruway().arg("unmount").arg(mounted.target("")).output().unwrap();
    assert!(unmount.status.success(), "{}", stderr(&unmount));
    assert!(mounted.processes().is_empty());
}

/// Without a supervisor, no process reports which worker serves the mount.
#[test]
fn a_worker_that_is_stopped_and_orphaned_does_not_outlive_its_mount() {
    for options in [&["unmount"][..], &["unmount", "--force"]] {
        let Some(mounted) = Mounted::new(&[]) else { return };
        let (supervisor, worker) = (mounted.processes()[0], mounted.worker());
        let stop = Command::new("kill").args(["-STOP", &worker.to_string()]).status();
        assert!(stop.unwrap().success());
        kill(supervisor);
        wait_until("it is orphaned", || mounted.processes() == [worker]);
        let info = format!("/proc/{worker}/fdinfo");
        let infos = fs::read_dir(info).unwrap().flatten().map(|entry| entry.path());
        let is_known =
            |info: PathBuf| fs::read_to_string(info).unwrap().contains("fuse_connection");
        if !infos.into_iter().any(is_known) {
            kill(worker);
            return skipped("this kernel does not say which connection a process serves");
        }
        let unmount = thruway().args(options).arg(mounted.target("")).output().unwrap();
        assert!(unmount.status.success(), "{}", stderr(&unmount));
        assert!(mounted.processes().is_empty());
    }
}

#[test]
fn status_reports_a_source_that_fails() {
    let Some(lower) = Mounted::new(&[]) else { return };
    fs::write(lower.source("file"), "").unwrap();
    let upper = lower.path("upper");
    fs::create_dir(&upper).unwrap();
    let mount = thruway().arg("mount").args([&lower.target(""), &upper]).output().unwrap();
    assert!(mount.status.success(), "{}", stderr(&mount));
    let status = || status_of(&upper, &[]);
    assert_eq!(status().status.code(), Some(0), "{}", stdout(&status()));
    fs::read(upper.join("file")).unwrap();
    assert!(stdout(&status()).contains("stacks no more than two"), "{}", stdout(&status()));
    lower.processes().into_iter().for_each(kill);
    // An aborted request has another error than later requests.
    let error = || fs::metadata(lower.target("x")).err().and_then(|error| error.raw_os_error());
    wait_until("it fails", || error() == Some(107));
    // The same holds for the errors that the upper mount gets from its source.
    let is_said = || stdout(&status()).contains("Transport endpoint is not connected");
    wait_until("the error of the source is said", is_said);
    let said = status();
    let unmounted = thruway().args(["unmount", "--force"]).arg(&upper).output().unwrap();
    assert_eq!(said.status.code(), Some(1), "{}", stdout(&said));
    assert!(unmounted.status.success(), "{}", stderr(&unmounted));
}

#[test]
fn a_file_that_may_not_be_written_to_is_refused_as_beside_the_mount() {
    let Some(mounted) = Mounted::new(&[]) else { return };
    thruway_testing::copy_program("/bin/sleep", mounted.source("program"));
    let mut program = Command::new(mounted.source("program")).arg("100").spawn().unwrap();
    let append = |path| OpenOptions::new().append(true).open(path).unwrap_err().raw_os_error();
    let running = [append(mounted.source("program")), append(mounted.target("program"))];
    program.kill().and_then(|()| program.wait()).unwrap();
    assert_eq!(running, [Some(26), Some(26)]);
    assert!(OpenOptions::new().append(true).open(mounted.target("program")).is_ok());
}

/// At an exec, the program closes files while its entries in `/proc` are locked, and the mount handles each close.
#[test]
fn a_program_that_becomes_another_one_is_not_waited_for() {
    let Some(mounted) = Mounted::new(&[]) else { return };
    let open = File::create(mounted.target("closed at exec")).unwrap();
    for _ in 0..200 {
        fs::metadata(mounted.target("nothing")).unwrap_err();
        assert!(Command::new("true").status().unwrap().success());
    }
    drop(open);
}

#[test]
fn the_sources_are_free_when_a_mount_was_taken_away() {
    let Some(mounted) = Mounted::new(&[]) else { return };
    let unmount = thruway().arg("unmount").arg(mounted.target("")).output().unwrap();
    assert!(unmount.status.success(), "{}", stderr(&unmount));
    assert!(mounted.processes().is_empty());
}

#[test]
fn a_mount_that_hangs_is_unmounted_by_force() {
    let Some(mounted) = Mounted::new(&[]) else { return };
    let signal = |name: &str, process: u32| {
        let sent = Command::new("kill").args([name, &process.to_string()]).status();
        assert!(sent.unwrap().success());
    };
    signal("-STOP", mounted.worker());
    let target = mounted.target("");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| fs::metadata(mounted.target("name")));
        // The waiting program holds the mount, or will find the mount gone.
        let unmount = thruway().arg("unmount").arg("--force").arg(&target).output().unwrap();
        assert!(unmount.status.success(), "{}", stderr(&unmount));
        assert!(waiting.join().unwrap().is_err());
    });
    assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
    assert!(mounted.processes().is_empty());
}

#[test]
fn ending_the_foreground_process_unmounts() {
    let Some(mounted) = Mounted::new(&[]) else { return };
    let target = mounted.target("");
    assert!(thruway().arg("unmount").arg(&target).status().unwrap().success());
    let mut command = thruway();
    command.args(["mount", "-f"]).arg(mounted.source("")).arg(&target);
    let mut foreground = command.spawn().unwrap();
    fs::write(mounted.source("file"), "").unwrap();
    wait_until("the mount is there", || fs::read_dir(&target).unwrap().count() == 1);
    let stopped = Command::new("kill").args(["-TERM", &foreground.id().to_string()]).status();
    assert!(stopped.unwrap().success());
    assert!(foreground.wait().unwrap().success());
    assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
}

#[test]
fn users_of_a_mount_that_ends_are_cut_off_and_that_is_logged_once() {
    let Some(mounted) = Mounted::new(&[]) else { return };
    let mut open = File::create(mounted.target("file")).unwrap();
    let process = mounted.status("process").to_string();
    let end = || Command::new("kill").arg(&process).status().unwrap().success();
    assert!(end());
    wait_until("the mount is gone", || File::open(mounted.target("file")).is_err());
    // On a busy machine the daemon may have ended by now.
    end();
    wait_until("the daemon is gone", || mounted.processes().is_empty());
    assert_eq!(mounted.log().matches("disconnecting its users").count(), 1);
    // The kernel moves the data of the file.
    open.write_all(b"text").unwrap();
    assert_eq!(open.metadata().unwrap_err().raw_os_error(), Some(107));
}

#[test]
fn a_mount_below_its_own_source_does_not_show_itself() {
    let Some(mounted) = Mounted::new(&[]) else { return };
    fs::create_dir_all(mounted.source("mnt/all")).unwrap();
    fs::write(mounted.source("mnt/all/hidden"), "").unwrap();
    fs::write(mounted.source("file"), "text").unwrap();
    let target = mounted.source("mnt/all");
    let mut mount = thruway();
    mount.args(["mount", "--nonempty"]).args([&mounted.source(""), &target]);
    let output = mount.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(fs::read_to_string(target.join("file")).unwrap(), "text");
    // The folder shows what the mount hides there.
    let names = fs::read_dir(target.join("mnt/all")).unwrap().flatten();
    assert_eq!(names.map(|entry| entry.file_name()).collect::<Vec<_>>(), ["hidden"]);
    assert!(thruway().arg("unmount").arg(&target).status().unwrap().success());
}

#[test]
fn what_cannot_be_mounted_is_named_with_its_cure() {
    let Some(mounted) = Mounted::new(&[]) else { return };
    let path = |name: &str| mounted.folder.path().join(name).to_str().unwrap().to_owned();
    let (source, target) = (path("source"), path("target"));
    fs::write(mounted.source("file"), "").unwrap();
    fs::create_dir(path("empty")).unwrap();
    let refused = |arguments: &[&str], words: &str| {
        let output = run(arguments);
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
        assert_eq!(output.status.code(), Some(2));
    };
    refused(&["mount", &source, &target], "is already mounted\n\nhint: thruway unmount ");
    refused(&["mount", &target, &source], "it is not empty\n\nhint: --nonempty");
    refused(&["mount", &path("missing"), &path("empty")], "cannot open the source ");
    refused(&["mount", &path("source/file"), &path("empty")], "hint: a source must be a folder");
    refused(&["mount", &source, &path("missing")], "hint: mkdir ");
    refused(&["mount", &source, &path("source/file")], "hint: the target must be a folder");
    refused(&["unmount", &path("empty")], "is not a thruway mount\n\nhint: thruway mount status");
    for verb in [&["unmount"][..], &["mount", "status"]] {
        let missing = path("missing");
        let arguments: Vec<_> = verb.iter().copied().chain([missing.as_str()]).collect();
        refused(&arguments, "(os error 2)\n\nhint: thruway mount status lists all mounts");
    }
    refused(&["mount-process"], "no command on standard input");
    let busy = File::open(mounted.target("file")).unwrap();
    refused(&["unmount", &target], "hint: --lazy");
    drop(busy);
}

#[test]
fn setuid_is_cleared_by_an_ordinary_users_write_and_kept_by_roots() {
    let Some(mounted) = Mounted::new(&["--allow-other"]) else { return };
    let program = mounted.target("program");
    fs::write(&program, "#").unwrap();
    let write_as = |user: &str| {
        fs::set_permissions(&program, fs::Permissions::from_mode(0o6777)).unwrap();
        let script = format!("echo x > '{}'", program.display());
        let mut command = Command::new("setpriv");
        command.args(["--reuid", user, "--regid", user, "--clear-groups", "sh", "-c", &script]);
        assert!(command.status().unwrap().success());
        let source = fs::metadata(mounted.source("program")).unwrap().mode();
        assert_eq!(fs::metadata(&program).unwrap().mode(), source);
        source & 0o7777
    };
    fs::set_permissions(mounted.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(write_as("1000"), 0o777);
    assert_eq!(write_as("0"), 0o6777);
}

#[test]
fn what_others_change_in_the_source_is_seen_although_the_kernel_keeps_it() {
    let Some(mounted) = Mounted::new(&[]) else { return };
    let target = |name: &str| mounted.target(name);
    fs::create_dir(mounted.source("folder")).unwrap();
    // The kernel now caches the absence of the name, and the listing.
    assert!(fs::metadata(target("folder/new")).is_err());
    assert_eq!(fs::read_dir(target("folder")).unwrap().count(), 0);
    fs::write(mounted.source("folder/new"), "text").unwrap();
    wait_until("a new name is seen", || fs::metadata(target("folder/new")).is_ok());
    wait_until("it is listed", || fs::read_dir(target("folder")).unwrap().count() == 1);
    let size = || fs::metadata(target("folder/new")).unwrap().len();
    assert_eq!(size(), 4);
    fs::write(mounted.source("folder/new"), "longer text").unwrap();
    wait_until("its size is seen", || size() == 11);
    fs::set_permissions(mounted.source("folder/new"), fs::Permissions::from_mode(0o600)).unwrap();
    let mode = || fs::metadata(target("folder/new")).unwrap().mode() & 0o777;
    wait_until("its mode is seen", || mode() == 0o600);
    fs::rename(mounted.source("folder/new"), mounted.source("folder/moved")).unwrap();
    wait_until("the new name is seen", || fs::metadata(target("folder/moved")).is_ok());
    wait_until("the old name is gone", || fs::metadata(target("folder/new")).is_err());
    fs::write(mounted.source("other"), "other").unwrap();
    fs::rename(mounted.source("other"), mounted.source("folder/moved")).unwrap();
    let text = || fs::read_to_string(target("folder/moved")).unwrap_or_default();
    wait_until("the other file is seen", || text() == "other");
    fs::remove_file(mounted.source("folder/moved")).unwrap();
    wait_until("it is gone", || fs::metadata(target("folder/moved")).is_err());
    assert!(mounted.status("counts")["changes_told"].as_u64() > Some(0));
}

#[test]
fn what_others_change_in_a_whole_file_system_is_seen_too() {
    let Some(mounted) = Mounted::new(&[]) else { return };
    let (source, target) = (mounted.path("whole"), mounted.path("view"));
    [&source, &target].iter().for_each(|folder| fs::create_dir(folder).unwrap());
    let tmpfs = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&source).status();
    assert!(tmpfs.unwrap().success());
    fs::create_dir(source.join("folder")).unwrap();
    assert!(thruway().arg("mount").args([&source, &target]).status().unwrap().success());
    let seen = |name: &str| fs::metadata(target.join(name)).map(|found| found.len()).ok();
    assert_eq!((seen("new"), seen("folder/new")), (None, None));
    fs::write(source.join("new"), "text").unwrap();
    fs::write(source.join("folder/new"), "longer text").unwrap();
    wait_until("new names are seen", || (seen("new"), seen("folder/new")) == (Some(4), Some(11)));
    fs::write(source.join("folder/new"), "text").unwrap();
    wait_until("a new size is seen", || seen("folder/new") == Some(4));
    fs::remove_file(source.join("folder/new")).unwrap();
    wait_until("it is gone", || seen("folder/new").is_none());
    assert!(thruway().arg("unmount").arg(&target).status().unwrap().success());
    assert!(Command::new("umount").arg(&source).status().unwrap().success());
}

#[test]
fn changes_through_the_mount_invalidate_nothing() {
    let Some(mounted) = Mounted::new(&[]) else { return };
    fs::create_dir(mounted.target("folder")).unwrap();
    for name in 0..100 {
        fs::write(mounted.target(&format!("folder/{name}")), "text").unwrap();
    }
    let asked = || mounted.requests("getattr") + mounted.requests("statx");
    let before = asked();
    for name in 0..100 {
        assert_eq!(fs::metadata(mounted.target(&format!("folder/{name}"))).unwrap().len(), 4);
    }
    // Each file was written to after the kernel had read its attributes, so they are requested once. After a late
    // report, the kernel looks up the names as well.
    let more = asked() - before;
    let is_late = mounted.status("counts")["changes_told_late"] != 0;
    assert!(is_late || (100..110).contains(&more), "{more}");
    // The daemon reads a change by another program after the events of these files.
    fs::write(mounted.source("folder/other"), "").unwrap();
    wait_until("it is told", || fs::metadata(mounted.target("folder/other")).is_ok());
    // The new name and the folder itself may be requested, but none of the hundred files, unless the kernel's
    // attributes have expired in the meantime.
    wait_until("what was told is held", || {
        let before = asked();
        for name in 0..100 {
            fs::metadata(mounted.target(&format!("folder/{name}"))).unwrap();
        }
        asked() - before < 10
    });
}
