//! `mount.thruway`, started by mount(8) in its own mount namespace, in which `/sbin` contains the helper.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::{Duration, SystemTime};

use super::fixture::Mounted;
use crate::{stderr, stdout};
use thruway_testing::skipped;

/// Overlays `/sbin` with a folder that contains the helper.
const HELPERS: &str = r#"
mount -t overlay -o "lowerdir=$1/helpers:$(realpath /sbin)" overlay "$(realpath /sbin)"
mount_all() { mount --all --fstab "$1/fstab" --types thruway,fuse.thruway "$2"; }
"#;

/// Starts a program in its own namespaces of mounts and of processes. All processes end with the program.
const NAMESPACE: [&str; 6] =
    ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];

/// Whether this machine permits such namespaces. Reports the reason if not. A plain chroot does not permit them: its
/// root is not a mount, so its propagation cannot be changed.
fn has_namespaces() -> bool {
    let output = Command::new(NAMESPACE[0]).args(&NAMESPACE[1..]).arg("true").output();
    match output {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            skipped(stderr(&output).trim());
            false
        }
        Err(error) => {
            skipped(format_args!("unshare: {error}"));
            false
        }
    }
}

/// Creates a folder for a mount that only the namespace makes, and the files that a line of fstab needs.
fn prepared(table: impl FnOnce(&str) -> String) -> Option<Mounted> {
    let mounted = Mounted::new(&[]).filter(|_| has_namespaces())?;
    for folder in ["a", "b", "one", "two", "helpers"] {
        fs::create_dir(mounted.path(folder)).unwrap();
    }
    fs::write(mounted.path("a/first"), "a").unwrap();
    fs::write(mounted.path("b/first"), "b").unwrap();
    fs::write(mounted.path("b/second"), "b\n").unwrap();
    for helper in ["helpers/mount.thruway", "helpers/mount.fuse.thruway"] {
        symlink(env!("CARGO_BIN_EXE_thruway"), mounted.path(helper)).unwrap();
    }
    let base = mounted.folder.path().to_str().unwrap();
    fs::write(mounted.path("fstab"), table(base)).unwrap();
    Some(mounted)
}

/// Runs a script in which mount(8) mounts the lines of the table, and returns its output.
fn script_output(mounted: &Mounted, script: &str) -> String {
    let mut command = Command::new("timeout");
    // All processes of the namespace end with the first one, whatever they wait for.
    command.arg("60").args(NAMESPACE);
    command.args(["setsid", "sh", "-euc", &format!("{HELPERS}{script}"), "sh"]);
    let output = command.arg(mounted.folder.path()).output().unwrap();
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    stdout(&output).to_owned()
}

#[test]
fn lines_of_fstab_are_mounted_by_mount() {
    let table = |base: &str| {
        format!(
            "{base}/a:{base}/b {base}/one thruway allow_other,create=first,nofail 0 0\n\
             {base}/a {base}/two thruway ro,noauto,x-systemd.automount,log={base}/log 0 0\n\
             {base}/a {base}/two fuse.thruway ro,nosuid,nodev,log={base}/log 0 0\n"
        )
    };
    let script = r#"
mount_all "$1" --fake
find "$1/one" "$1/two" -mindepth 1
mount_all "$1" --verbose >/dev/null
mount_all "$1" --verbose | grep -c 'already mounted'
cat "$1/one/first" "$1/one/second" "$1/two/first"
touch "$1/two/new" 2>/dev/null || echo read-only
for folder in one two; do
    findmnt --noheadings --output OPTIONS "$1/$folder" | grep -o nosuid,nodev || echo neither
done
mount -o remount,ro "$1/one"
touch "$1/one/new" 2>/dev/null || echo read-only
mount -o remount,rw "$1/one"
touch "$1/one/new"
umount "$1/one" "$1/two"
find "$1/one" "$1/two" -mindepth 1
"#;
    let Some(mounted) = prepared(table) else { return };
    let expected = "2\nab\naread-only\nneither\nnosuid,nodev\nread-only\n";
    assert_eq!(script_output(&mounted, script), expected);
}

#[test]
fn access_times_are_kept_as_fstab_says() {
    let table = |base: &str| {
        format!(
            "{base}/a {base}/one thruway noatime 0 0\n\
             {base}/b {base}/two thruway strictatime 0 0\n"
        )
    };
    let Some(mounted) = prepared(table) else { return };
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
    for name in ["a", "a/first", "b", "b/first"] {
        let times = fs::FileTimes::new().set_accessed(long_ago).set_modified(long_ago);
        File::open(mounted.path(name)).unwrap().set_times(times).unwrap();
    }
    let script = r#"
mount_all "$1" --verbose >/dev/null
for folder in one two; do
    findmnt --noheadings --output OPTIONS "$1/$folder" | grep -o noatime || echo no more
    for round in 1 2; do cat "$1/$folder/first" >/dev/null; ls "$1/$folder" >/dev/null; done
done
for name in one two one/first two/first a a/first; do
    if [ "$(stat -c %X "$1/$name")" = 1000 ]; then echo old; else echo new; fi
done
umount "$1/one" "$1/two"
"#;
    assert_eq!(script_output(&mounted, script), "noatime\nno more\nold\nnew\nold\nnew\nold\nold\n");
}

#[test]
fn a_policy_is_read_again_by_a_remount() {
    let table = |base: &str| {
        format!("{base}/a {base}/one thruway policy={base}/policy,log={base}/log 0 0\n")
    };
    let Some(mounted) = prepared(table) else { return };
    let rule = "[[rule]]\npaths = ['first']\nverdict = 'deny'\n";
    fs::write(mounted.path("policy"), "").unwrap();
    fs::write(mounted.path("with a rule"), rule).unwrap();
    fs::write(mounted.path("with an error"), "[[rule]]\nverdict = 'perhaps'\n").unwrap();
    let script = r#"
mount_all "$1" --verbose >/dev/null
remount() { mount -o "remount,policy=$1/policy" "$1/one"; }
cat "$1/one/first"
cp "$1/with a rule" "$1/policy"
remount "$1"
for round in $(seq 500); do cat "$1/one/first" >/dev/null 2>&1 || break; sleep 0.01; done
cat "$1/one/first" 2>/dev/null || echo " denied"
cp "$1/with an error" "$1/policy"
remount "$1" 2>"$1/said" || echo "status $?"
grep -o 'line 2, column 11' "$1/said"
cat "$1/one/first" 2>/dev/null || echo denied
umount "$1/one"
"#;
    let expected = "a denied\nstatus 32\nline 2, column 11\ndenied\n";
    assert_eq!(script_output(&mounted, script), expected);
}

#[test]
fn a_frozen_mount_is_not_written_to_though_root_makes_it_writable() {
    let table = |base: &str| format!("{base}/a {base}/one thruway frozen 0 0\n");
    let Some(mounted) = prepared(table) else { return };
    let script = r#"
mount_all "$1" --verbose >/dev/null
mount -o remount,frozen "$1/one"
findmnt --noheadings --output OPTIONS "$1/one" | cut -d, -f1
mount --internal-only -o remount,rw "$1/a" "$1/one"
findmnt --noheadings --output OPTIONS "$1/one" | cut -d, -f1
for change in 'echo >"$1/one/first"' 'echo >"$1/one/new"' 'mkdir "$1/one/new"' 'rm "$1/one/first"' \
    'chmod 0 "$1/one/first"'; do
    if sh -c "$change" sh "$1" 2>&1 | grep -q 'Read-only file system'; then echo refused; fi
done
umount "$1/one"
"#;
    assert_eq!(script_output(&mounted, script), format!("ro\nrw\n{}", "refused\n".repeat(5)));
    assert_eq!(fs::read_to_string(mounted.path("a/first")).unwrap(), "a");
}

/// The kernel blocks all processes that look at the target, except the process group that mounts there.
#[test]
fn an_automount_is_served() {
    let kernel = fs::read_to_string("/proc/filesystems").unwrap();
    if !kernel.contains("autofs") {
        skipped("this kernel has no automounts");
        return;
    }
    let Some(mounted) = prepared(|_| String::new()) else { return };
    let script = r#"
mkfifo "$1/requests"
exec 9<>"$1/requests"
group=$(ps -o pgid= $$ | tr -d ' ')
mount -t autofs -o "fd=9,pgrp=$group,minproto=5,maxproto=5,direct" automount "$1/one"
setsid cat "$1/one/first" >/dev/null 2>&1 &
trap "kill -9 $!" EXIT
head -c 1 <&9 >/dev/null
timeout --foreground 10 mount -t thruway "$1/a" "$1/one"
cat "$1/one/first"
umount "$1/one"
"#;
    assert_eq!(script_output(&mounted, script), "a");
}
