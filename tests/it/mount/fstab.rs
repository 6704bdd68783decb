//! `mount.thruway`, as mount(8) starts it: in a namespace of mounts of its own, where `/sbin` has it.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use super::fixture::Mounted;
use crate::{stderr, stdout};

/// Puts a folder with the helper before what is in `/sbin`, and has mount(8) mount what stands in a file.
const SCRIPT: &str = r#"
mount -t overlay -o "lowerdir=$1/helpers:$(realpath /sbin)" overlay "$(realpath /sbin)"
mount --all --fstab "$1/fstab" --types thruway,fuse.thruway
cat "$1/one/first" "$1/one/second" "$1/two/first"
touch "$1/two/new" 2>/dev/null || echo read-only
for folder in one two; do findmnt --noheadings --output OPTIONS "$1/$folder" | grep -o nosuid,nodev || echo neither; done
mount -o remount,ro "$1/a:$1/b" "$1/one"
touch "$1/one/new" 2>/dev/null || echo read-only
umount "$1/one" "$1/two"
find "$1/one" "$1/two" -mindepth 1
"#;

#[test]
fn lines_of_fstab_are_mounted_by_mount() {
    let Some(mounted) = Mounted::new(&[]) else { return };
    for folder in ["a", "b", "one", "two", "helpers"] {
        fs::create_dir(mounted.path(folder)).unwrap();
    }
    fs::write(mounted.path("a/first"), "a").unwrap();
    fs::write(mounted.path("b/first"), "b").unwrap();
    fs::write(mounted.path("b/second"), "b\n").unwrap();
    for helper in ["helpers/mount.thruway", "helpers/mount.fuse.thruway"] {
        symlink(env!("CARGO_BIN_EXE_thruway"), mounted.path(helper)).unwrap();
    }
    let base = mounted.folder.path().display();
    let table = format!(
        "{base}/a:{base}/b {base}/one thruway allow_other,create=first,nofail 0 0\n\
         {base}/a {base}/two thruway ro,noauto,x-systemd.automount,log={base}/log 0 0\n\
         {base}/a {base}/two fuse.thruway ro,nosuid,nodev,log={base}/log 0 0\n"
    );
    fs::write(mounted.path("fstab"), table).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-euc", SCRIPT, "sh"]).arg(mounted.folder.path());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stdout(&output), "ab\naread-only\nneither\nnosuid,nodev\nread-only\n");
}
