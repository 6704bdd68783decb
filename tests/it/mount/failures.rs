//! Sources that fail, become read-only, or limit what a program writes.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::{IFlags, ioctl_getflags};
use rustix::io::Errno;

use super::fixture::{Mounted, status_of, wait_until};
use super::moves::move_to;
use super::submounts::Disks;
use crate::{run, stderr, stdout};
use thruway_testing::skipped;

const SOURCES: &[&str] = &["first", "second"];

fn errno<T>(result: io::Result<T>) -> Option<Errno> {
    result.err().and_then(|error| Errno::from_io_error(&error))
}

fn did(program: &str, arguments: &[&str]) -> bool {
    let output = Command::new(program).args(arguments).output();
    output.is_ok_and(|output| output.status.success())
}

fn append(path: &Path) -> io::Result<()> {
    File::options().append(true).open(path)?.write_all(b"more")
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = entries.map(|name| name.into_string().unwrap()).collect();
    names.retain(|name| name != "lost+found");
    names.sort();
    names
}

/// Makes an ext4 in a file, with a file `big` that fills most of it, and mounts it.
fn failing_disk(disks: &mut Disks, image: &Path, at: &Path) -> bool {
    File::create(image).unwrap().set_len(16 << 20).unwrap();
    // In one group, whose tables are at the start, so that no later write makes the file longer again.
    let options = ["-q", "-O", "^has_journal", "-b", "4096", "-E", "lazy_itable_init=0"];
    let is_made = did("mkfs.ext4", &[&options[..], &[image.to_str().unwrap()]].concat())
        && disks.mount_file(image, at);
    if !is_made {
        skipped("no file system in a file can be made and mounted");
        return false;
    }
    fs::write(at.join("big"), vec![7; 12 << 20]).unwrap();
    File::open(at.join("big")).unwrap().sync_all().unwrap();
    true
}

/// Truncates the device in the middle of the file, no part of which stays in memory: blocks after that place cannot be
/// read.
fn fail(image: &Path, file: &Path) {
    let image = File::options().write(true).open(image).unwrap();
    wait_until("the disk fails", || {
        image.set_len(6 << 20).unwrap();
        let file = File::open(file).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let read = file.read_exact_at(&mut vec![0; 4096], (12 << 20) - 4096);
        errno(read) == Some(Errno::IO)
    });
}

#[test]
fn a_disk_that_cannot_be_read_fails_its_own_files_and_status_names_the_error() {
    for passthrough in ["on", "off"] {
        let mut disks = Disks::default();
        let mut is_possible = true;
        let arguments = ["--passthrough", passthrough];
        let mounted = Mounted::with_sources(SOURCES, &arguments, |mounted| {
            fs::write(mounted.path("second/good"), "good").unwrap();
            let (image, at) = (mounted.path("image"), mounted.path("first"));
            is_possible = failing_disk(&mut disks, &image, &at);
        });
        let Some(mounted) = mounted.filter(|_| is_possible) else { return };
        fail(&mounted.path("image"), &mounted.path("first/big"));
        let big = mounted.target("big");
        assert_eq!(errno(fs::read(&big)), Some(Errno::IO), "{passthrough}");
        // After a failed move, the file is in its source and in no other.
        assert_eq!(move_to(&big, &mounted.path("second")), Err(Errno::IO), "{passthrough}");
        assert_eq!(names(&mounted.path("second")), ["good"]);
        assert_eq!(names(&mounted.target("")), ["big", "good"]);
        assert_eq!(fs::read_to_string(mounted.target("good")).unwrap(), "good");
        fs::write(mounted.path("second/new"), "new").unwrap();
        append(&mounted.target("new")).unwrap();
        let output = status_of(&mounted.target(""), &[]);
        assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
        assert!(
            stdout(&output).contains("requests failed: Input/output error"),
            "{}",
            stdout(&output)
        );
    }
}

#[test]
fn a_source_that_is_remounted_read_only_takes_no_change_until_it_is_writable_again() {
    // First the whole file system, then the only mount that shows it.
    for kind in ["remount", "remount,bind"] {
        let mut disks = Disks::default();
        let mut is_possible = true;
        let mounted = Mounted::with_sources(SOURCES, &["--create", "first"], |mounted| {
            is_possible = SOURCES.iter().all(|name| disks.mount_of(4 << 20, &mounted.path(name)));
            fs::write(mounted.path("first/a"), "text").unwrap();
        });
        let Some(mounted) = mounted.filter(|_| is_possible) else { return };
        let first = mounted.path("first");
        let remount = |access: &str| {
            let options = format!("{kind},{access}");
            did("mount", &["-o", &options, first.to_str().unwrap()])
        };
        append(&mounted.target("a")).unwrap();
        // The daemon may hold the file open for a moment.
        wait_until("the source is read-only", || remount("ro"));
        let renames = Cell::new(0_u32);
        let names = || if renames.get().is_multiple_of(2) { ["a", "b"] } else { ["b", "a"] };
        wait_until("the mount knows", || {
            let [from, to] = names().map(|name| mounted.target(name));
            let renamed = fs::rename(from, to);
            renames.set(renames.get() + u32::from(renamed.is_ok()));
            errno(renamed) == Some(Errno::ROFS)
        });
        let name = names()[0];
        let file = mounted.target(name);
        wait_until("no file is opened for writing", || {
            errno(File::options().write(true).open(&file)) == Some(Errno::ROFS)
        });
        assert_eq!(fs::read_to_string(&file).unwrap(), "textmore", "{kind}");
        assert_eq!(errno(append(&file)), Some(Errno::ROFS), "{kind}");
        assert_eq!(errno(fs::remove_file(&file)), Some(Errno::ROFS), "{kind}");
        let truncated = File::options().write(true).truncate(true).open(&file);
        assert_eq!(errno(truncated), Some(Errno::ROFS), "{kind}");
        // New files go to the next source.
        fs::write(mounted.target("new"), "new").unwrap();
        assert_eq!(fs::read_to_string(mounted.path("second/new")).unwrap(), "new");
        assert!(remount("rw"));
        wait_until("the mount knows", || append(&file).is_ok());
        assert_eq!(fs::read_to_string(mounted.source(name)).unwrap(), "textmoremore");
    }
}

#[test]
fn a_file_that_moves_keeps_the_flags_that_the_other_disk_has() {
    let mut disks = Disks::default();
    let mut is_possible = true;
    let mounted = Mounted::with_sources(SOURCES, &["--create", "first"], |mounted| {
        is_possible = disks.mount_of(4 << 20, &mounted.path("second"));
        let at = |name: &str| mounted.path(name).to_str().unwrap().to_owned();
        fs::create_dir(at("first/folder")).unwrap();
        fs::write(at("first/folder/file"), "text").unwrap();
        fs::write(at("second/probe"), "").unwrap();
        // The disk in memory has no flag for synchronous writes.
        is_possible &= did("chattr", &["+dAS", &at("first/folder/file")])
            && did("chattr", &["+d", &at("first/folder")])
            && did("chattr", &["+dA", &at("second/probe")])
            && !did("chattr", &["+S", &at("second/probe")]);
    });
    let Some(mounted) = mounted else { return };
    if !is_possible {
        skipped("these file systems do not have the flags");
        return;
    }
    let flags = |name: &str| ioctl_getflags(File::open(mounted.path(name)).unwrap()).unwrap();
    move_to(&mounted.target("folder/file"), &mounted.path("second")).unwrap();
    assert_eq!(flags("second/folder/file"), IFlags::NODUMP | IFlags::NOATIME);
    assert_eq!(flags("second/folder"), IFlags::NODUMP);
    move_to(&mounted.target("folder/file"), &mounted.path("first")).unwrap();
    assert!(flags("first/folder/file").contains(IFlags::NODUMP | IFlags::NOATIME));
}

#[test]
fn a_limit_of_file_sizes_binds_the_writing_program_and_not_the_mount() {
    for passthrough in ["on", "off"] {
        let mut output = None;
        let mounted = Mounted::new(&["--passthrough", passthrough]);
        let Some(mounted) = mounted else { return };
        // The same folder at another place, by a mount that is started under a limit that it may raise.
        let limited = "trap '' XFSZ; ulimit -S -f 8; exec \"$@\"";
        let again = mounted.path("again");
        fs::create_dir(&again).unwrap();
        let started = Command::new("sh")
            .args(["-c", limited, "sh", env!("CARGO_BIN_EXE_thruway"), "mount"])
            .args(["--passthrough", passthrough])
            .args([mounted.path("source"), again.clone()])
            .output()
            .unwrap();
        if started.status.success() {
            let file = File::create(again.join("large")).unwrap();
            let written = file.write_all_at(&[1; 100_000], 1 << 20);
            // A program under the limit gets the error that it would get on a plain folder.
            let script = "head -c 100000 /dev/zero >large-too";
            let program = Command::new("sh")
                .args(["-c", limited, "sh", "sh", "-c", script])
                .current_dir(&again)
                .output()
                .unwrap();
            output = Some((written, program));
        }
        let unmounted = run(&["unmount", "--lazy", again.to_str().unwrap()]);
        assert!(started.status.success(), "{}", stderr(&started));
        assert!(unmounted.status.success(), "{}", stderr(&unmounted));
        let (written, program) = output.unwrap();
        written.unwrap();
        assert!(stderr(&program).contains("File too large"), "{}", stderr(&program));
        assert_eq!(fs::metadata(mounted.source("large")).unwrap().len(), (1 << 20) + 100_000);
    }
}
