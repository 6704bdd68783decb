//! Watches the sources for changes behind the mount, by fanotify.
//!
//! Each folder whose names the kernel caches is watched. If a source is a whole file system, the file system is watched
//! instead, because reading a file below a watched folder costs an extra check. Events of this process are skipped,
//! since the kernel made those changes through the mount.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use thruway_sys::fanotify::{self, ChangeKind, Event, SystemId, Watcher};
use thruway_sys::handle::FileHandle;
use thruway_sys::threads;

use crate::actor::errno;
use crate::event_flag::EventFlag;
use crate::inodes::{InodeId, lock};

/// The interval at which events are read while the mount itself makes changes, each of which would wake the threads.
const COALESCE_INTERVAL: Duration = Duration::from_millis(5);
/// After this many irrelevant wake-ups in succession, events are coalesced as well.
const IRRELEVANT_MAX: u32 = 16;
/// After this many wake-ups by the mount's own changes, events are coalesced, unless other processes change names
/// meanwhile.
const OWN_MAX: u32 = 16;
/// The time for which a thread spins while another thread reports changes, enough for some hundred changes.
const SPIN_MAX: Duration = Duration::from_micros(2_000);
/// The size of the buffer for a read: some hundred events.
const BUFFER_BYTES: usize = 64 * 1024;
/// The size of the buffer while a request waits: at least one event fits.
const CATCHING_UP_BYTES: usize = 4096;

/// A folder as fanotify identifies it.
type FolderKey = (SystemId, FileHandle);

#[derive(Debug)]
pub(crate) struct Watch {
    watcher: Watcher,
    /// File systems that are watched as a whole.
    whole: Mutex<HashSet<SystemId>>,
    folders: Mutex<HashMap<FolderKey, WatchKey>>,
    /// Held by the thread that reports changes.
    reporting: Mutex<()>,
    /// RaisedFlag before events are read, and lowered after their changes are reported. The watcher is not readable in
    /// between.
    is_reporting: EventFlag,
    /// Held by the thread that reads events at intervals while events are coalesced.
    coalescing: Mutex<()>,
}

/// The origin of the changes in a batch of events.
#[derive(Debug, Default)]
struct Batch {
    /// Whether this process made a change.
    own: bool,
    /// Whether another process made a change.
    other: bool,
    /// Whether another process made a change in a folder that the kernel knows.
    relevant: bool,
    /// Whether a relevant change concerns names. The end of a write through the mount does not count, although the
    /// kernel reports it with the id of the writing program.
    names: bool,
}

impl Batch {
    fn note(&mut self, event: &Event<'_>, own: i32) {
        let is_own = matches!(event, Event::Change { pid, .. } if *pid == own);
        self.own |= is_own;
        self.other |= !is_own;
    }

    fn note_relevant(&mut self, change: &Change<'_>) {
        self.relevant = true;
        let is_of_name =
            matches!(change, Change::Name(..) | Change::FolderName(..) | Change::Everything);
        self.names |= is_of_name;
    }
}

/// A folder that the kernel knows, and the branch whose part of the folder is watched.
pub(crate) type WatchKey = (InodeId, u16);

/// A change made by another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    /// A name in the folder refers to another file, or to none.
    Name(WatchKey, &'a [u8], ChangeKind),
    /// The name of a folder in the folder refers to another folder, or to none.
    FolderName(WatchKey, &'a [u8]),
    /// The file with this name in the folder changed.
    File(WatchKey, &'a [u8]),
    /// The attributes of the folder itself changed.
    Folder(InodeId, FileHandle),
    /// The attributes of a folder without a watch changed.
    Unwatched(FileHandle),
    /// Any file may have changed.
    Everything,
    /// A file changed, and the thread that reports the change is delayed.
    Late,
}

impl Watch {
    /// Creates a watch without folders.
    pub(crate) fn new() -> Result<Self, Errno> {
        let watcher = Watcher::new().map_err(|error| errno(&error))?;
        Ok(Self {
            watcher,
            whole: Mutex::default(),
            folders: Mutex::default(),
            reporting: Mutex::default(),
            is_reporting: EventFlag::new()?,
            coalescing: Mutex::default(),
        })
    }

    /// Watches the whole file system that contains this folder.
    pub(crate) fn add_whole(&self, fd: &OwnedFd) -> Result<(), Errno> {
        let system = fanotify::system_id(fd.as_fd()).map_err(|error| errno(&error))?;
        self.watcher.watch_whole(fd.as_fd()).map_err(|error| errno(&error))?;
        lock(&self.whole).insert(system);
        Ok(())
    }

    /// Stops treating file systems as watched: folders that are added from now on get their own watches.
    pub(crate) fn forget_whole(&self) {
        lock(&self.whole).clear();
    }

    /// Watches a folder, whose changes are reported with this key.
    pub(crate) fn add(&self, key: WatchKey, fd: &OwnedFd) -> Result<(), Errno> {
        let folder = folder_key(fd)?;
        let mut folders = lock(&self.folders);
        if !lock(&self.whole).contains(&folder.0) {
            self.watcher.watch(fd.as_fd()).map_err(|error| errno(&error))?;
        }
        // The first event cannot be reported before the insertion, since the report takes the lock.
        folders.insert(folder, key);
        Ok(())
    }

    /// Removes the watch of a folder that the kernel has forgotten. The kernel may meanwhile know the same folder by
    /// another id, whose watch stays.
    pub(crate) fn remove(&self, id: InodeId, fd: &OwnedFd) {
        let Ok(folder) = folder_key(fd) else { return };
        let mut folders = lock(&self.folders);
        if folders.get(&folder).is_none_or(|key| key.0 != id) {
            return;
        }
        folders.remove(&folder);
        if !lock(&self.whole).contains(&folder.0) {
            // If the folder was removed, the kernel has removed the watch.
            let _ = self.watcher.unwatch(fd.as_fd());
        }
    }

    /// Whether there may be changes that are not reported yet.
    pub(crate) fn is_behind(&self) -> bool {
        let is_readable = || {
            let mut readable = [PollFd::new(&self.watcher, PollFlags::IN)];
            poll(&mut readable, Some(&Timespec::default())) != Ok(0)
        };
        is_readable() || self.reporting.try_lock().is_err()
    }

    /// Returns the number of watched folders.
    pub(crate) fn len(&self) -> usize {
        lock(&self.folders).len()
    }

    /// Reports the changes of other processes. Never returns without an error.
    ///
    /// Two threads per CPU run this function, and a change wakes all of them. The threads on the CPU of the program
    /// that made the change preempt that program: they spin on the CPU until one of the threads has reported all
    /// changes. If the reporting thread is delayed, the spinning thread reports [`Change::Late`].
    pub(crate) fn run(&self, report: impl Fn(Change<'_>)) -> Result<(), Errno> {
        let mut buffer = vec![0; BUFFER_BYTES];
        let (mut irrelevant, mut own) = (0, 0);
        loop {
            // While a thread coalesces events, the other threads wait here, so that events do not wake them.
            drop(lock(&self.coalescing));
            let mut readable = [
                PollFd::new(&self.watcher, PollFlags::IN),
                PollFd::new(&self.is_reporting, PollFlags::IN),
            ];
            match poll(&mut readable, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
            let batch = self.report_flagged(&mut buffer, &report)?;
            irrelevant = match batch {
                Batch { relevant: true, .. } => 0,
                Batch { other, .. } => irrelevant + u32::from(other),
            };
            own = if batch.names { 0 } else { own + u32::from(batch.own) };
            if own > OWN_MAX || irrelevant > IRRELEVANT_MAX {
                (irrelevant, own) = (0, 0);
                self.coalesce(&mut buffer, &report)?;
            }
        }
    }

    /// Reports all changes so far, with the flag raised meanwhile. A thread that wakes up in that time finds no event,
    /// but finds the flag. Without the flag, the thread would sleep again, and the program that made the change would
    /// continue too early.
    fn report_flagged(
        &self,
        buffer: &mut [u8],
        report: &impl Fn(Change<'_>),
    ) -> Result<Batch, Errno> {
        let _turn = self.turn(|| report(Change::Late));
        if poll(&mut [PollFd::new(&self.watcher, PollFlags::IN)], Some(&Timespec::default()))? == 0
        {
            return Ok(Batch::default());
        }
        let _raised = self.is_reporting.raise()?;
        self.report_events(buffer, report)
    }

    /// Reports the changes of other processes after a delay. A single thread runs this function, and requests call
    /// [`catch_up`](Self::catch_up) first.
    pub(crate) fn run_late(&self, report: impl Fn(Change<'_>)) -> Result<(), Errno> {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            match poll(&mut [PollFd::new(&self.watcher, PollFlags::IN)], None) {
                Ok(_) => std::thread::sleep(COALESCE_INTERVAL),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno),
            }
            self.report_all(&mut buffer, &report)?;
        }
    }

    /// Reports all changes so far.
    pub(crate) fn catch_up(&self, report: impl Fn(Change<'_>)) -> Result<(), Errno> {
        self.report_all(&mut [0; CATCHING_UP_BYTES], &report).map(drop)
    }

    /// Reports changes at intervals, until the mount itself makes no more changes.
    fn coalesce(&self, buffer: &mut [u8], report: &impl Fn(Change<'_>)) -> Result<(), Errno> {
        let Ok(_coalescing) = self.coalescing.try_lock() else { return Ok(()) };
        loop {
            std::thread::sleep(COALESCE_INTERVAL);
            let batch = self.report_all(buffer, report)?;
            if batch.names || !batch.own && (batch.relevant || !batch.other) {
                return Ok(());
            }
        }
    }

    /// Waits for other reporting threads, then reports all changes so far.
    fn report_all(&self, buffer: &mut [u8], report: &impl Fn(Change<'_>)) -> Result<Batch, Errno> {
        let _turn = self.turn(|| ());
        self.report_events(buffer, report)
    }

    /// Reports the changes of all readable events. The calling thread must have the turn.
    fn report_events(
        &self,
        buffer: &mut [u8],
        report: &impl Fn(Change<'_>),
    ) -> Result<Batch, Errno> {
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        let mut batch = Batch::default();
        loop {
            let events = self.watcher.read(buffer).map_err(|error| errno(&error))?;
            if events.is_empty() {
                return Ok(batch);
            }
            for event in events {
                batch.note(&event, own);
                if let Some(change) = self.change(&event, own) {
                    batch.note_relevant(&change);
                    report(change);
                }
            }
        }
    }

    /// Waits for the turn of this thread, since only one thread at a time may report. The thread spins, because
    /// sleeping would let the program that made the change continue. After [`SPIN_MAX`], calls `on_delay` and sleeps.
    fn turn(&self, on_delay: impl FnOnce()) -> MutexGuard<'_, ()> {
        let start = Instant::now();
        while start.elapsed() < SPIN_MAX {
            if let Ok(turn) = self.reporting.try_lock() {
                return turn;
            }
            std::hint::spin_loop();
        }
        on_delay();
        lock(&self.reporting)
    }

    fn change<'a>(&self, event: &Event<'a>, own: i32) -> Option<Change<'a>> {
        let Event::Change { pid, kind, is_folder, system, folder, name } = *event else {
            return Some(Change::Everything);
        };
        if pid == own {
            return None;
        }
        let Some(key) = lock(&self.folders).get(&(system, folder)).copied() else {
            return (name == b".").then_some(Change::Unwatched(folder));
        };
        Some(match (kind, name) {
            (ChangeKind::Modified, b".") => Change::Folder(key.0, folder),
            (ChangeKind::Modified, name) => Change::File(key, name),
            (_, name) if is_folder => Change::FolderName(key, name),
            (_, name) => Change::Name(key, name, kind),
        })
    }
}

/// Checks whether threads of this process may preempt the programs that make changes.
pub(crate) fn may_preempt() -> Result<(), Errno> {
    let first = std::thread::spawn(threads::set_fifo_policy).join();
    first.map_err(|_| Errno::AGAIN)?.map_err(|error| errno(&error))
}

/// Pins the calling thread to a CPU, where it preempts other programs from now on.
pub(crate) fn preempt_on(processor: usize) -> Result<(), Errno> {
    let mut only = CpuSet::new();
    only.set(processor);
    sched_setaffinity(None, &only)?;
    threads::set_fifo_policy().map_err(|error| errno(&error))
}

/// Returns the CPUs that this process may use.
pub(crate) fn processors() -> impl Iterator<Item = usize> {
    // If the set is unknown, only the first CPU is assumed.
    let allowed = sched_getaffinity(None).ok();
    let may_use = move |&processor: &usize| {
        allowed.map_or(processor == 0, |allowed| allowed.is_set(processor))
    };
    (0..CpuSet::MAX_CPU).filter(may_use)
}

fn folder_key(fd: &OwnedFd) -> Result<FolderKey, Errno> {
    let handle = FileHandle::of(fd.as_fd(), c"").map_err(|error| errno(&error))?;
    let system = fanotify::system_id(fd.as_fd()).map_err(|error| errno(&error))?;
    Ok((system, handle))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::process::Command;
    use std::sync::mpsc;
    use thruway_testing::skipped;

    /// Bounds a test that would otherwise hang.
    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn own_changes_are_skipped_and_others_are_reported() {
        let Ok(watch) = Watch::new() else {
            return skipped("no fanotify for this user");
        };
        let folder = tempfile::tempdir().unwrap();
        let fd: OwnedFd = File::open(folder.path()).unwrap().into();
        watch.add((InodeId(7), 0), &fd).unwrap();
        assert_eq!(watch.len(), 1);
        fs::write(folder.path().join("own"), "").unwrap();
        let mut buffer = [0; 4096];
        let events = watch.watcher.read(&mut buffer).unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!(events.clone().filter_map(|event| watch.change(&event, own)).count(), 0);
        let mut reported = events.filter_map(|event| watch.change(&event, own + 1));
        assert_eq!(
            reported.next(),
            Some(Change::Name((InodeId(7), 0), b"own", ChangeKind::Appeared))
        );
        assert_eq!(watch.change(&Event::Overflow, own), Some(Change::Everything));
        watch.remove(InodeId(7), &fd);
        assert_eq!(watch.len(), 0);
    }

    /// Only changes of names end the coalescing: the end of a write through the mount looks like a change by another
    /// program.
    #[test]
    fn the_end_of_a_write_is_no_change_of_a_name() {
        let key = (InodeId(7), 0);
        let names = |change: Change<'_>| {
            let mut batch = Batch::default();
            batch.note_relevant(&change);
            assert!(batch.relevant);
            batch.names
        };
        assert!(!names(Change::File(key, b"name")));
        assert!(names(Change::Name(key, b"name", ChangeKind::Appeared)));
        assert!(names(Change::FolderName(key, b"name")) && names(Change::Everything));
    }

    /// Starts a second thread that waits after the event was read.
    #[test]
    fn a_change_that_another_thread_reports_is_waited_for() {
        let Ok(watch) = Watch::new() else {
            return skipped("no fanotify for this user");
        };
        let folder = tempfile::tempdir().unwrap();
        let fd: OwnedFd = File::open(folder.path()).unwrap().into();
        watch.add((InodeId(7), 0), &fd).unwrap();
        let watch: &Watch = Box::leak(Box::new(watch));
        let (reported, is_reported) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let first = Mutex::new(Some((reported, may_go_on)));
        std::thread::spawn(move || {
            watch.run(|_| {
                let Some((reported, may_go_on)) = lock(&first).take() else { return };
                reported.send(()).unwrap();
                let _ = may_go_on.recv();
            })
        });
        // Another process makes the change, since changes of this process are skipped. The change causes a single
        // event, which the first thread reads.
        let made = Command::new("mkdir").arg(folder.path().join("name")).status();
        assert!(made.unwrap().success());
        is_reported.recv_timeout(PATIENCE).unwrap();
        let (late, is_late) = mpsc::channel();
        let late = Mutex::new(late);
        std::thread::spawn(move || {
            watch.run(|change| lock(&late).send(change == Change::Late).unwrap())
        });
        assert_eq!(is_late.recv_timeout(PATIENCE), Ok(true));
        drop(go_on);
    }
}
