//! Flags of files, as `chattr` sets them.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::{IFlags, ioctl_getflags};
use thruway_sys::file_flags::{extended_flags, set_extended_flags};

use super::fixture::Mounted;
use super::submounts::Disks;
use crate::thruway;
use thruway_testing::skipped;

const SOURCES: [&str; 2] = ["source", "second"];

/// `FS_XFLAG_NODUMP`, in the first field of the structure.
const EXTENDED_NO_DUMP: u8 = 0x80;

/// A user who is neither root nor the owner of a file.
const OTHER_USER: u32 = 4321;

fn flags(path: &Path) -> IFlags {
    ioctl_getflags(File::open(path).unwrap()).unwrap()
}

/// Runs `chattr`, and returns its message on failure.
fn chattr(how: &str, path: &Path) -> Result<(), String> {
    let output = Command::new("chattr").arg(how).arg(path).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(message) }
}

/// Mounts two sources that contain a folder and a file each, unless this machine lacks flags or the right to set them.
fn mounted(arguments: &[&str]) -> Option<Mounted> {
    let mounted = Mounted::with_sources(&SOURCES, arguments, |mounted| {
        for source in SOURCES {
            fs::create_dir(mounted.path(source).join("folder")).unwrap();
            fs::write(mounted.path(source).join("folder").join(source), source).unwrap();
            fs::set_permissions(mounted.path(source), fs::Permissions::from_mode(0o755)).unwrap();
        }
    })?;
    if chattr("+d", &mounted.source("folder/source")).is_err() {
        skipped("this file system has no flags");
        return None;
    }
    Some(mounted)
}

#[test]
fn flags_are_those_of_the_source_and_are_set_there() {
    for io in ["on", "off"] {
        let Some(mounted) = mounted(&["--passthrough", io]) else { return };
        let (shown, file) = (mounted.target("folder/source"), mounted.source("folder/source"));
        assert!(flags(&shown).contains(IFlags::NODUMP));
        assert_eq!(flags(&shown), flags(&file));
        let before = fs::metadata(&shown).unwrap();
        chattr("+A", &shown).unwrap();
        assert!(flags(&file).contains(IFlags::NOATIME | IFlags::NODUMP));
        let (after, there) = (fs::metadata(&shown).unwrap(), fs::metadata(&file).unwrap());
        let changed = |stat: &fs::Metadata| (stat.ctime(), stat.ctime_nsec());
        assert_eq!(changed(&after), changed(&there));
        assert!(changed(&after) >= changed(&before));

        let open = File::open(&shown).unwrap();
        let mut extended = extended_flags(open.as_fd()).unwrap();
        assert_eq!(extended, extended_flags(File::open(&file).unwrap().as_fd()).unwrap());
        assert_ne!(extended[0] & EXTENDED_NO_DUMP, 0);
        extended[0] &= !EXTENDED_NO_DUMP;
        set_extended_flags(open.as_fd(), extended).unwrap();
        assert!(!flags(&file).contains(IFlags::NODUMP));
        assert!(flags(&file).contains(IFlags::NOATIME));
    }
}

#[test]
fn an_immutable_file_is_immutable_through_the_mount() {
    let Some(mounted) = mounted(&[]) else { return };
    let shown = mounted.target("folder/source");
    if let Err(message) = chattr("+i", &shown) {
        return skipped(message);
    }
    let refused = fs::remove_file(&shown).map_err(|error| error.raw_os_error());
    let written = fs::write(&shown, "changed").map_err(|error| error.raw_os_error());
    chattr("-i", &shown).unwrap();
    assert_eq!((refused, written), (Err(Some(1)), Err(Some(1))));
    fs::remove_file(&shown).unwrap();
}

#[test]
fn a_merged_folder_gets_flags_in_each_source_or_in_none() {
    let Some(mounted) = mounted(&[]) else { return };
    let folders = SOURCES.map(|source| mounted.path(source).join("folder"));
    let all = || folders.each_ref().map(|folder| flags(folder).contains(IFlags::NODUMP));
    chattr("+d", &mounted.target("folder")).unwrap();
    assert_eq!(all(), [true, true]);
    chattr("-d", &mounted.target("folder")).unwrap();
    assert_eq!(all(), [false, false]);
}

#[test]
fn a_flag_that_the_first_source_lacks_is_set_in_no_other() {
    let mut disks = Disks::default();
    let mut is_ready = true;
    // A disk in memory has no synchronous folders.
    let Some(mounted) = Mounted::with_sources(&SOURCES, &[], |mounted| {
        is_ready = disks.mount_of(1 << 20, &mounted.path(SOURCES[0]));
        for source in SOURCES {
            fs::create_dir(mounted.path(source).join("folder")).unwrap();
        }
    }) else {
        return;
    };
    let second = mounted.path(SOURCES[1]).join("folder");
    if !is_ready || chattr("+S", &second).is_err() {
        return skipped("these file systems have no flags");
    }
    chattr("-S", &second).unwrap();
    let before = flags(&second);
    chattr("+S", &mounted.target("folder")).unwrap_err();
    assert_eq!(flags(&second), before);
}

#[test]
fn flags_are_changed_by_the_owner_alone_and_not_in_a_read_only_source() {
    let Some(mounted) = mounted(&["--allow-other"]) else { return };
    let shown = mounted.target("folder/source");
    fs::set_permissions(mounted.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let mut other = Command::new("chattr");
    other.arg("+A").arg(&shown).uid(OTHER_USER).gid(OTHER_USER);
    match other.output() {
        Ok(output) => assert!(!output.status.success()),
        Err(error) => return skipped(error),
    }
    assert!(!flags(&shown).contains(IFlags::NOATIME));
    let read_only = format!("{}=RO", mounted.path("source").display());
    let added = thruway().args(["mount", "add"]).arg(mounted.target("")).arg(read_only).output();
    assert!(added.unwrap().status.success());
    let message = chattr("+A", &shown).unwrap_err();
    assert!(message.contains("Read-only file system"), "{message}");
    assert!(!flags(&shown).contains(IFlags::NOATIME));
}

#[test]
fn a_policy_refuses_a_change_of_flags() {
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("policy.toml");
    fs::write(&policy, "[[rule]]\npaths = [\"source\"]\nverdict = \"read-only\"\n").unwrap();
    let Some(mounted) = mounted(&["--policy", policy.to_str().unwrap()]) else { return };
    let shown = mounted.target("folder/source");
    assert!(chattr("+A", &shown).unwrap_err().contains("Read-only file system"));
    assert!(!flags(&shown).contains(IFlags::NOATIME));
    chattr("+A", &mounted.target("folder/second")).unwrap();
}
