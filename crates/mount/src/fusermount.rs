//! Mounts and unmounts by `fusermount3`, through which the system lets ordinary users mount.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use thruway_sys::printable;

use crate::process::Channel;
use crate::{Error, Plan};

const PROGRAM: &str = "fusermount3";

/// Mounts at the plan's target. Returns the connection, which the program sends over a socket.
pub(crate) fn mount(plan: &Plan) -> Result<OwnedFd, Error> {
    check(plan)?;
    let (ours, theirs) =
        Channel::pair().map_err(|cause| Error::new("cannot start", PROGRAM.as_ref(), cause))?;
    let output = Command::new(PROGRAM)
        .args(["-o", &options(plan), "--"])
        .arg(&plan.target)
        .env("_FUSE_COMMFD", "0")
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .output()
        .map_err(not_started)?;
    if !output.status.success() {
        return Err(failed("cannot mount at", &plan.target, &output));
    }
    let mut received = Vec::new();
    ours.receive_descriptors(&mut received)
        .map_err(|cause| Error::new("no connection from", PROGRAM.as_ref(), cause))?;
    received.pop().ok_or_else(|| Error::plain(format_args!("no connection from {PROGRAM}")))
}

/// Refuses options that have no effect on the mounts of ordinary users.
fn check(plan: &Plan) -> Result<(), Error> {
    let option = match (plan.suid, plan.dev) {
        (true, _) => "--suid",
        (_, true) => "--dev",
        _ => return Ok(()),
    };
    Err(Error::plain(format_args!("{option} needs root: {PROGRAM} mounts with nosuid and nodev"))
        .with_hint(format_args!("mount as root, or without {option}")))
}

fn options(plan: &Plan) -> String {
    let source = plan.source_name();
    let source = source.to_string_lossy().replace('\\', "\\\\").replace(',', "\\,");
    let mut options = format!("subtype=thruway,default_permissions,fsname={source}");
    let more =
        [(plan.is_read_only(), ",ro"), (!plan.exec, ",noexec"), (plan.allow_other, ",allow_other")];
    more.iter().filter(|(set, _)| *set).for_each(|(_, option)| options.push_str(option));
    options
}

/// Unmounts. With `lazy`, the mount is detached.
pub(crate) fn unmount(target: &Path, lazy: bool) -> Result<(), Error> {
    let how = if lazy { "-uz" } else { "-u" };
    let output =
        Command::new(PROGRAM).arg(how).arg("--").arg(target).output().map_err(not_started)?;
    match output.status.success() {
        true => Ok(()),
        false => Err(failed("cannot unmount", target, &output)),
    }
}

fn not_started(cause: io::Error) -> Error {
    let error = Error::new("cannot start", PROGRAM.as_ref(), cause);
    error.with_hint("mounting needs root, or fusermount3 (Debian: apt install fuse3)")
}

/// Returns the program's error, with the remedy for those that have one.
fn failed(doing: &str, target: &Path, output: &Output) -> Error {
    let words = String::from_utf8_lossy(&output.stderr);
    let words = words.trim().trim_start_matches("fusermount3: ");
    let reason = if words.is_empty() { output.status.to_string() } else { words.to_owned() };
    let target = printable::path(&target);
    let error = Error::plain(format_args!("{doing} {target}: {reason}"));
    match remedy(&reason, has_no_new_privileges()) {
        Some(remedy) => error.with_hint(remedy),
        None => error,
    }
}

/// Returns the remedy for an error of the program, which is told apart by its text.
fn remedy(reason: &str, has_no_new_privileges: bool) -> Option<&'static str> {
    let has = |words: &str| reason.contains(words);
    let is_forbidden = has("Operation not permitted") && !has("failed to unmount");
    Some(match () {
        () if has("user_allow_other") => {
            "without --allow-other, the mount is for you alone; \
             for others, root adds the line user_allow_other to /etc/fuse.conf"
        }
        () if has("modprobe fuse") => {
            "load the kernel's fuse module; in a container, pass /dev/fuse through"
        }
        () if has("failed to open /dev/fuse") => {
            "this user has to be able to read and write /dev/fuse (mode 0666, as udev sets it)"
        }
        () if has("no write access to mountpoint") || has("not owned by user") => {
            "mount at a folder of your own"
        }
        () if has("could not determine username") => {
            "fusermount3 serves only users that have an entry in /etc/passwd"
        }
        () if has("mount_max") => "unmount one, or let root raise mount_max in /etc/fuse.conf",
        () if is_forbidden && has_no_new_privileges => {
            "no_new_privs is set for this process (NoNewPrivileges= of systemd, or a container's option), \
             so fusermount3 gets no rights"
        }
        () if is_forbidden => {
            "in a user namespace or a container, mounting needs CAP_SYS_ADMIN there: \
             unshare --user --map-root-user --mount"
        }
        () if has("Device or resource busy") => {
            "--lazy unmounts once the mount is no longer in use, --force at once"
        }
        () => return None,
    })
}

/// Whether programs that this process starts gain no rights by their set-user-id bit.
fn has_no_new_privileges() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut values = status.lines().filter_map(|line| line.strip_prefix("NoNewPrivs:"));
    values.next().is_some_and(|value| value.trim() == "1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    #[test]
    fn an_error_of_the_program_comes_with_its_remedy() {
        let cases = [
            (
                "option allow_other only allowed if 'user_allow_other' is set in /etc/fuse.conf",
                "root adds the line user_allow_other",
            ),
            ("failed to open /dev/fuse: Permission denied", "read and write /dev/fuse"),
            ("fuse device not found, try 'modprobe fuse' first", "load the kernel's fuse module"),
            ("user has no write access to mountpoint /a", "a folder of your own"),
            ("mountpoint /a not owned by user", "a folder of your own"),
            (
                "too many FUSE filesystems mounted; mount_max=N can be set in /etc/fuse.conf",
                "raise mount_max",
            ),
            ("could not determine username", "an entry in /etc/passwd"),
            ("mount failed: Operation not permitted", "needs CAP_SYS_ADMIN there"),
            ("failed to unmount /a: Device or resource busy", "--lazy"),
        ];
        for (reason, expected) in cases {
            let remedy = remedy(reason, false).unwrap_or_default();
            assert!(remedy.contains(expected), "{reason}: {remedy}");
        }
        let words = "mount failed: Operation not permitted";
        assert!(remedy(words, true).is_some_and(|remedy| remedy.contains("no_new_privs")));
        assert_eq!(remedy("something else", true), None);
    }

    #[test]
    fn a_program_that_says_nothing_is_described_by_its_status() {
        let killed = ExitStatus::from_raw(9);
        let output = Output { status: killed, stdout: Vec::new(), stderr: Vec::new() };
        let error = failed("cannot mount at", Path::new("/a"), &output).to_string();
        assert!(error.starts_with("cannot mount at /a: signal: 9"), "{error}");
    }
}
