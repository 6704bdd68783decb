//! Locks, as seen by programs that use the source directly.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use thruway_sys::record_lock::{LockKind, RecordLock, conflict, try_lock, unlock};

use super::fixture::{Mounted, kill, wait_until};

const WHOLE: RecordLock =
    RecordLock { kind: LockKind::Exclusive, start: 0, end: i64::MAX.cast_unsigned() };

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

fn is_free(path: &Path) -> bool {
    conflict(open(path).as_fd(), &WHOLE).unwrap().is_none()
}

#[test]
fn a_flock_is_seen_in_the_source_and_the_sources_in_the_mount() {
    let Some(mounted) = Mounted::new(&[]) else { return };
    fs::write(mounted.source("file"), "").unwrap();
    let (ours, theirs) = (open(&mounted.target("file")), open(&mounted.source("file")));
    for (one, other) in [(&ours, &theirs), (&theirs, &ours)] {
        flock(one, FlockOperation::LockExclusive).unwrap();
        assert!(flock(other, FlockOperation::NonBlockingLockExclusive).is_err());
        flock(one, FlockOperation::Unlock).unwrap();
        flock(other, FlockOperation::NonBlockingLockExclusive).unwrap();
        flock(other, FlockOperation::Unlock).unwrap();
    }
}

#[test]
fn a_record_lock_is_seen_in_the_source_if_locks_are_shared() {
    for (arguments, is_shared) in [(&["--locks", "shared"][..], true), (&[], false)] {
        let Some(mounted) = Mounted::new(arguments) else { return };
        fs::write(mounted.source("file"), "text").unwrap();
        let (ours, theirs) = (mounted.target("file"), mounted.source("file"));
        let file = open(&ours);
        try_lock(file.as_fd(), &WHOLE).unwrap();
        assert!(!is_free(&ours));
        assert_eq!(is_free(&theirs), !is_shared);
        unlock(file.as_fd(), 0, WHOLE.end).unwrap();
        assert!(is_free(&ours) && is_free(&theirs));
        try_lock(file.as_fd(), &WHOLE).unwrap();
        drop(file);
        // A program that another test starts may have inherited the file for a moment.
        wait_until("it ends with its file", || is_free(&ours) && is_free(&theirs));
        let file = open(&theirs);
        try_lock(file.as_fd(), &WHOLE).unwrap();
        assert_eq!(is_free(&ours), !is_shared);
    }
}

#[test]
fn locks_outlive_the_worker_through_which_they_were_taken() {
    let Some(mounted) = Mounted::new(&["--locks", "shared"]) else { return };
    let path = |name: &str| mounted.target(name);
    for name in ["flocked", "locked"] {
        fs::write(path(name), "").unwrap();
    }
    let is_flocked = |path: &Path| {
        flock(open(path), FlockOperation::NonBlockingLockExclusive) == Err(Errno::AGAIN)
    };
    let (flocked, locked) = (open(&path("flocked")), open(&path("locked")));
    flock(&flocked, FlockOperation::LockExclusive).unwrap();
    try_lock(locked.as_fd(), &WHOLE).unwrap();
    for round in 1..=2 {
        kill(mounted.worker());
        wait_until("another worker serves", || mounted.restarts() == Some(round));
        assert!(is_flocked(&path("flocked")) && is_flocked(&mounted.source("flocked")));
        assert!(!is_free(&path("locked")) && !is_free(&mounted.source("locked")));
    }
    drop((flocked, locked));
    wait_until("they end with their files", || {
        !is_flocked(&mounted.source("flocked")) && is_free(&mounted.source("locked"))
    });
}

/// No process keeps a file open for locks that have ended.
#[test]
fn a_lock_that_has_ended_leaves_nothing_behind() {
    let Some(mounted) = Mounted::new(&[]) else { return };
    fs::write(mounted.target("file"), "").unwrap();
    let descriptors = || {
        mounted
            .processes()
            .into_iter()
            .map(|process| fs::read_dir(format!("/proc/{process}/fd")).unwrap().count())
            .sum::<usize>()
    };
    let use_it = || {
        let file = open(&mounted.target("file"));
        flock(&file, FlockOperation::LockExclusive).unwrap();
        drop(file);
        // The file is free for the next lock as soon as the last lock's end has been reported.
        wait_until("it is free", || {
            let file = open(&mounted.source("file"));
            flock(file, FlockOperation::NonBlockingLockExclusive).is_ok()
        });
    };
    use_it();
    let before = descriptors();
    (0..60).for_each(|_| use_it());
    wait_until("all are closed", || descriptors() < before + 20);
}
