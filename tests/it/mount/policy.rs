//! Policies that are checked at open.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::thread;

use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::fixture::{Mounted, wait_until};
use crate::{run, stderr};

const ACCESS: Option<i32> = Some(13);
const NOENT: Option<i32> = Some(2);
const ROFS: Option<i32> = Some(30);
const XDEV: Option<i32> = Some(18);
const BUSY: Option<i32> = Some(16);

/// A mount with these rules.
pub(super) fn ruled(rules: &str, fill: impl FnOnce(&Mounted)) -> Option<Mounted> {
    ruled_with(&[], rules, fill)
}

/// Makes a mount with these rules and options that other users may enter.
pub(super) fn ruled_with(
    options: &[&str],
    rules: &str,
    fill: impl FnOnce(&Mounted),
) -> Option<Mounted> {
    mount_ruled(None, options, rules, fill)
}

/// Makes a mount with these rules in a new folder below `place`.
pub(super) fn ruled_in(
    place: Option<&Path>,
    rules: &str,
    fill: impl FnOnce(&Mounted),
) -> Option<Mounted> {
    mount_ruled(place, &[], rules, fill)
}

fn mount_ruled(
    place: Option<&Path>,
    options: &[&str],
    rules: &str,
    fill: impl FnOnce(&Mounted),
) -> Option<Mounted> {
    let beside = tempfile::NamedTempFile::new().unwrap();
    fs::write(beside.path(), rules).unwrap();
    let path = beside.path().to_str().unwrap().to_owned();
    let options = [options, &["--allow-other", "--policy", &path]].concat();
    let open = |mounted: &Mounted| {
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(mounted.folder.path(), mode).unwrap();
        fill(mounted);
    };
    Mounted::with_sources_in(place, &["source"], &options, open)
}

pub(super) fn write(mounted: &Mounted, name: &str, text: &str) {
    let path = mounted.source(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

pub(super) fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> Option<i32> {
    result.unwrap_err().raw_os_error()
}

pub(super) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Runs a function in a thread of this user, without other groups.
pub(super) fn as_user<T: Send>(user: u32, run: impl FnOnce() -> T + Send) -> T {
    let become_user = move || {
        set_thread_groups(&[]).unwrap();
        set_thread_res_gid(None, Gid::from_raw(user), None).unwrap();
        set_thread_res_uid(None, Uid::from_raw(user), None).unwrap();
        run()
    };
    thread::scope(|scope| scope.spawn(become_user).join().unwrap())
}

#[test]
fn what_is_denied_hidden_or_read_only_is_so_for_all_that_can_be_done_with_it() {
    let rules = "log = true\n\
        [[rule]]\npaths = [\"secret\"]\nverdict = \"deny\"\n\
        [[rule]]\npaths = [\".*\"]\nverdict = \"hide\"\n\
        [[rule]]\npaths = [\"docs\"]\nverdict = \"read-only\"\n";
    let all = ["secret/a", ".hidden/a", "docs/a", "free/a", "free/.b"];
    let fill = |mounted: &Mounted| all.iter().for_each(|name| write(mounted, name, "text"));
    let Some(mounted) = ruled(rules, fill) else { return };
    let at = |name: &str| mounted.target(name);
    assert_eq!(errno(fs::read(at("secret/a"))), ACCESS);
    assert_eq!(errno(fs::read_dir(at("secret"))), ACCESS);
    assert_eq!(errno(fs::write(at("secret/new"), "")), ACCESS);
    assert_eq!(errno(fs::remove_file(at("secret/a"))), ACCESS);
    assert_eq!(errno(fs::hard_link(at("secret/a"), at("free/link"))), ACCESS);
    assert_eq!(errno(fs::rename(at("secret/a"), at("free/moved"))), ACCESS);
    assert_eq!(fs::metadata(at("secret/a")).unwrap().len(), 4);
    for hidden in [".hidden", ".hidden/a", "free/.b"] {
        assert_eq!(errno(fs::metadata(at(hidden))), NOENT, "{hidden}");
    }
    assert_eq!(errno(fs::write(at("free/.new"), "")), NOENT);
    assert_eq!(names(&at("")), ["docs", "free", "secret"]);
    assert_eq!(names(&at("free")), ["a"]);
    assert_eq!(fs::read_to_string(at("docs/a")).unwrap(), "text");
    assert_eq!(errno(File::options().append(true).open(at("docs/a"))), ROFS);
    assert_eq!(errno(fs::create_dir(at("docs/new"))), ROFS);
    let mode = fs::Permissions::from_mode(0o600);
    assert_eq!(errno(fs::set_permissions(at("docs/a"), mode)), ROFS);
    assert_eq!(errno(fs::rename(at("free/a"), at("docs/a"))), ROFS);
    fs::write(at("free/a"), "more text").unwrap();
    let log = mounted.log();
    assert!(log.contains("refused reading secret/a: rule 1, user 0, group 0, process "), "{log}");
    assert!(log.contains("refused changing docs/new: rule 3, "), "{log}");
    assert!(mounted.status("counts")["refused_by_policy"].as_u64() >= Some(10));
    assert_eq!(mounted.status("rules"), 3);
}

#[test]
fn a_rule_about_a_user_holds_for_that_user() {
    let rules = "[[rule]]\npaths = [\"mail\"]\nuids = [1000]\nverdict = \"deny\"\n";
    let Some(mounted) = ruled(rules, |mounted| write(mounted, "mail", "text")) else { return };
    let read_as = |user: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", user, "--regid", user, "--clear-groups", "cat"]);
        command.arg(mounted.target("mail")).output().unwrap().status.success()
    };
    assert!(!read_as("1000"));
    assert!(read_as("1001"));
}

#[test]
fn a_rule_about_a_group_matches_all_its_members() {
    let rules = "log = true\n[[rule]]\npaths = [\"mail\"]\ngids = [2000]\nverdict = \"deny\"\n";
    let Some(mounted) = ruled(rules, |mounted| write(mounted, "mail", "text")) else { return };
    let read_in = |groups: [&str; 3]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "1000", "--regid"]).args(groups).arg("cat");
        command.arg(mounted.target("mail")).output().unwrap().status.success()
    };
    assert!(!read_in(["2000", "--groups", "1000"]));
    assert!(!read_in(["1000", "--groups", "3000,2000"]));
    assert!(read_in(["1000", "--groups", "3000,20000"]));
    assert_eq!(mounted.log().matches("refused reading mail: rule 1, user 1000").count(), 2);
}

#[test]
fn a_content_is_checked_before_the_open_succeeds() {
    let rules =
        "[[rule]]\ncontent = { magic = \"23 21\" }\naccess = \"read\"\nverdict = \"deny\"\n";
    let Some(mounted) = ruled(rules, |mounted| write(mounted, "a", "#!/bin/sh")) else { return };
    let read = || fs::read_to_string(mounted.target("a"));
    assert_eq!(errno(read()), ACCESS);
    assert_eq!(errno(read()), ACCESS);
    // A change through the mount keeps the length.
    fs::write(mounted.target("a"), "# /bin/sh").unwrap();
    assert_eq!(read().unwrap(), "# /bin/sh");
    // The file also changes behind the mount.
    fs::write(mounted.source("a"), "#!/bin/sh").unwrap();
    assert_eq!(errno(read()), ACCESS);
}

#[test]
fn daemon_io_is_checked_at_each_read() {
    let rules = "[[rule]]\npaths = [\"in\"]\ncontent = { regex = 'EVIL' }\nverdict = \"deny\"\n\
        [[rule]]\npaths = [\"in\"]\nverdict = \"daemon-io\"\n";
    let Some(mounted) = ruled(rules, |mounted| write(mounted, "in/a", "good")) else { return };
    let file = File::open(mounted.target("in/a")).unwrap();
    let read = || {
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, 0).map(|()| bytes)
    };
    assert_eq!(&read().unwrap(), b"good");
    fs::write(mounted.source("in/a"), "EVIL").unwrap();
    assert_eq!(errno(read()), ACCESS);
    assert_eq!(errno(File::open(mounted.target("in/a"))), ACCESS);
    fs::write(mounted.source("in/a"), "fine").unwrap();
    assert_eq!(&read().unwrap(), b"fine");
    let counts = mounted.status("counts");
    assert_eq!(
        (counts["opens_passthrough"].as_u64(), counts["opens_daemon_io"].as_u64()),
        (Some(0), Some(1))
    );
    fs::write(mounted.target("in/new"), "through the daemon").unwrap();
    assert_eq!(fs::read_to_string(mounted.source("in/new")).unwrap(), "through the daemon");
}

#[test]
fn a_folder_with_rules_below_it_does_not_take_what_is_in_it_elsewhere() {
    let rules = "[[rule]]\npaths = [\"a/b/secret\"]\nverdict = \"deny\"\n";
    let fill = |mounted: &Mounted| {
        ["a/b/secret", "a/b/other", "c/d"].iter().for_each(|name| write(mounted, name, ""));
    };
    let Some(mounted) = ruled(rules, fill) else { return };
    let rename = |old: &str, new: &str| fs::rename(mounted.target(old), mounted.target(new));
    assert_eq!(errno(rename("a/b", "free")), XDEV);
    assert_eq!(errno(rename("a", "free")), XDEV);
    rename("a/b/other", "a/b/another").unwrap();
    rename("c", "e").unwrap();
}

#[test]
fn a_policy_is_read_again_at_a_signal_and_open_files_keep_their_verdict() {
    let Some(mounted) = Mounted::new(&[]) else { return };
    assert!(crate::thruway().arg("unmount").arg(mounted.target("")).status().unwrap().success());
    let (rules, log) = (mounted.path("rules"), mounted.path("log"));
    let deny = |name: &str| {
        let rule = format!("[[rule]]\npaths = [\"{name}\"]\nverdict = \"hide\"\n");
        fs::write(&rules, rule).unwrap();
    };
    deny("a");
    ["a", "b"].iter().for_each(|name| write(&mounted, name, name));
    let mut mount = crate::thruway();
    mount.args(["mount", "-f", "--policy"]).arg(&rules).arg("--log").arg(&log);
    let mut mount = mount.arg(mounted.source("")).arg(mounted.target("")).spawn().unwrap();
    let read = |name: &str| fs::read_to_string(mounted.target(name));
    wait_until("b is there", || read("b").is_ok());
    assert_eq!(errno(read("a")), NOENT);
    let open = File::open(mounted.target("b")).unwrap();
    assert_eq!(mounted.status("process"), mount.id());
    let signal = || {
        let pid = mount.id().to_string();
        assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
    };
    fs::write(&rules, "[[rule]]\nverdict = \"never\"\n").unwrap();
    signal();
    let log = || fs::read_to_string(&log).unwrap_or_default();
    wait_until("the error is logged", || log().contains("line 2, column 11: unknown variant"));
    assert_eq!(errno(read("a")), NOENT);
    deny("b");
    signal();
    wait_until("a is shown", || read("a").is_ok());
    assert_eq!(errno(read("b")), NOENT);
    let mut byte = [0];
    open.read_exact_at(&mut byte, 0).unwrap();
    assert_eq!(&byte, b"b");
    // Another worker uses the rules that were read last.
    super::fixture::kill(mounted.worker());
    wait_until("b is hidden again", || errno(read("b")) == NOENT);
    assert_eq!(read("a").unwrap(), "a");
    assert!(Command::new("kill").arg(mount.id().to_string()).status().unwrap().success());
    assert!(mount.wait().unwrap().success());
}

#[test]
fn a_file_whose_data_the_kernel_moves_is_not_given_to_the_daemon_meanwhile() {
    let rules = "[[rule]]\nlarger_than = 3\nverdict = \"daemon-io\"\n";
    let Some(mounted) = ruled(rules, |mounted| write(mounted, "a", "123")) else { return };
    let open = File::open(mounted.target("a")).unwrap();
    fs::write(mounted.source("a"), "1234").unwrap();
    assert_eq!(errno(File::open(mounted.target("a"))), BUSY);
    drop(open);
    wait_until("it is closed", || File::open(mounted.target("a")).is_ok());
}

#[test]
fn a_policy_with_an_error_is_refused_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir(path("source")).unwrap();
    fs::create_dir(path("target")).unwrap();
    fs::write(path("rules"), "[[rule]]\nverdict = \"hide\"\npaths = [\"a\", \"[\"]\n").unwrap();
    let output = run(&["mount", "--policy", &path("rules"), &path("source"), &path("target")]);
    assert_eq!(output.status.code(), Some(2));
    let expected = format!(
        "thruway: in the policy {}, line 3, column 15: unclosed [\n\nhint: a policy with",
        path("rules")
    );
    assert!(stderr(&output).starts_with(&expected), "{}", stderr(&output));
    let output = run(&["mount", "--policy", &path("none"), &path("source"), &path("target")]);
    assert!(stderr(&output).starts_with("thruway: cannot read the policy "), "{}", stderr(&output));
}
