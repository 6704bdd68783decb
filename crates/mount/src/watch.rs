//! Being told what others change in the sources.
//!
//! Each folder that the kernel holds names of is watched, or the whole file system if that is what a
//! source is: every read of a file below a watched folder costs a look at that folder. What our own
//! process changes is told with our own number and skipped: the kernel knows it already.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use thruway_sys::fanotify::{self, SystemId, Told, Watcher, What};
use thruway_sys::handle::FileHandle;
use thruway_sys::threads;

use crate::actor::errno;
use crate::event_flag::EventFlag;
use crate::inodes::{InodeId, lock};

/// How often it is looked for changes while the mount itself makes many, of which each would wake us.
const COLLECTING: Duration = Duration::from_millis(5);
/// As often in a row what woke us may have been none of our business before changes are collected, too.
const VAIN_MAX: u32 = 16;
/// How long a thread waits awake for another one that tells changes: some hundred are told in that time.
const SPINNING: Duration = Duration::from_micros(2_000);
/// Room for what one read gives: some hundred changes.
const BUFFER_BYTES: usize = 64 * 1024;
/// The same where a request waits: one change has room at least.
const CATCHING_UP_BYTES: usize = 4096;

/// A folder as the kernel tells it.
type FolderKey = (SystemId, FileHandle);

#[derive(Debug)]
pub(crate) struct Watch {
    watcher: Watcher,
    /// File systems that are watched as a whole.
    whole: HashSet<SystemId>,
    folders: Mutex<HashMap<FolderKey, WatchKey>>,
    /// Held by the thread that tells what was changed.
    telling: Mutex<()>,
    /// Raised before changes are read, and until they are told: the watcher is no longer readable then.
    is_telling: EventFlag,
    /// Held by the thread that looks every now and then, while the mount itself makes changes.
    collecting: Mutex<()>,
}

/// Whose changes there were.
#[derive(Debug, Default)]
struct Seen {
    /// Made by this process.
    own: bool,
    /// Made by others.
    other: bool,
    /// Of these, in what the kernel knows.
    relevant: bool,
}

impl Seen {
    fn note(&mut self, told: &Told<'_>, own: i32) {
        let is_own = matches!(told, Told::Change { pid, .. } if *pid == own);
        self.own |= is_own;
        self.other |= !is_own;
    }
}

/// A folder that the kernel knows, and the branch whose part of it is watched.
pub(crate) type WatchKey = (InodeId, u16);

/// A change that somebody else has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    /// A name in the folder leads elsewhere, or to nothing.
    Name(WatchKey, &'a [u8], What),
    /// The same of a name that leads to a folder.
    FolderName(WatchKey, &'a [u8]),
    /// What a name in the folder leads to was changed.
    File(WatchKey, &'a [u8]),
    /// The folder's own attributes were changed.
    Folder(InodeId, FileHandle),
    /// The attributes of a folder were changed that is not watched itself.
    Unwatched(FileHandle),
    /// Anything may have changed.
    Everything,
    /// Something was changed, and another thread that tells it is held up.
    Late,
}

impl Watch {
    /// Watches nothing yet.
    pub(crate) fn new() -> Result<Self, Errno> {
        let watcher = Watcher::new().map_err(|error| errno(&error))?;
        Ok(Self {
            watcher,
            whole: HashSet::default(),
            folders: Mutex::default(),
            telling: Mutex::default(),
            is_telling: EventFlag::new()?,
            collecting: Mutex::default(),
        })
    }

    /// Watches the whole file system that this folder is on.
    pub(crate) fn add_whole(&mut self, place: &OwnedFd) -> Result<(), Errno> {
        let system = fanotify::system_id(place.as_fd()).map_err(|error| errno(&error))?;
        self.watcher.watch_whole(place.as_fd()).map_err(|error| errno(&error))?;
        self.whole.insert(system);
        Ok(())
    }

    /// Watches a folder that the kernel knows under this number.
    pub(crate) fn add(&self, spot: WatchKey, place: &OwnedFd) -> Result<(), Errno> {
        let key = key(place)?;
        let mut folders = lock(&self.folders);
        if !self.whole.contains(&key.0) {
            self.watcher.watch(place.as_fd()).map_err(|error| errno(&error))?;
        }
        // Noted before the first change can be told: that waits for the lock.
        folders.insert(key, spot);
        Ok(())
    }

    /// The kernel has forgotten the folder. It may have met it again since, under another number.
    pub(crate) fn remove(&self, id: InodeId, place: &OwnedFd) {
        let Ok(key) = key(place) else { return };
        let mut folders = lock(&self.folders);
        if folders.get(&key).is_none_or(|spot| spot.0 != id) {
            return;
        }
        folders.remove(&key);
        if !self.whole.contains(&key.0) {
            // A folder that is gone takes its watch with it.
            let _ = self.watcher.unwatch(place.as_fd());
        }
    }

    /// How many folders are watched.
    pub(crate) fn len(&self) -> usize {
        lock(&self.folders).len()
    }

    /// Tells `tell` each change that others make, for ever; called by two threads for each processor. A change wakes
    /// them all. Those on the processor of the program that made it run before that program goes on. One does not
    /// give way until all changes up to now are told, by itself or by another; if the other one is held up, it says so.
    pub(crate) fn run(&self, tell: impl Fn(Change<'_>)) -> Result<(), Errno> {
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut vain = 0;
        loop {
            // While one of them collects, the others do not listen: nothing wakes them.
            drop(lock(&self.collecting));
            let mut readable = [
                PollFd::new(&self.watcher, PollFlags::IN),
                PollFd::new(&self.is_telling, PollFlags::IN),
            ];
            match poll(&mut readable, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
            let seen = self.tell_visibly(&mut buffer, &tell)?;
            vain = match seen {
                Seen { relevant: true, .. } => 0,
                Seen { other, .. } => vain + u32::from(other),
            };
            if seen.own || vain > VAIN_MAX {
                vain = 0;
                self.collect(&mut buffer, &tell)?;
            }
        }
    }

    /// Tells all changes up to now. A thread that wakes up meanwhile, and finds no change, still finds that this one
    /// is telling. Else it would sleep again, and the program that made the change would go on.
    fn tell_visibly(&self, buffer: &mut [u8], tell: &impl Fn(Change<'_>)) -> Result<Seen, Errno> {
        let _turn = self.turn(|| tell(Change::Late));
        if poll(&mut [PollFd::new(&self.watcher, PollFlags::IN)], Some(&Timespec::default()))? == 0
        {
            return Ok(Seen::default());
        }
        let _raised = self.is_telling.raise()?;
        self.tell_read(buffer, tell)
    }

    /// As [`run`](Self::run), for one thread and without haste: whoever needs to know catches up.
    pub(crate) fn run_late(&self, tell: impl Fn(Change<'_>)) -> Result<(), Errno> {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            match poll(&mut [PollFd::new(&self.watcher, PollFlags::IN)], None) {
                Ok(_) => std::thread::sleep(COLLECTING),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno),
            }
            self.tell_all(&mut buffer, &tell)?;
        }
    }

    /// Tells all changes up to now.
    pub(crate) fn catch_up(&self, tell: impl Fn(Change<'_>)) -> Result<(), Errno> {
        self.tell_all(&mut [0; CATCHING_UP_BYTES], &tell).map(drop)
    }

    /// Tells what has gathered every now and then, until nothing has.
    fn collect(&self, buffer: &mut [u8], tell: &impl Fn(Change<'_>)) -> Result<(), Errno> {
        let Ok(_collecting) = self.collecting.try_lock() else { return Ok(()) };
        loop {
            std::thread::sleep(COLLECTING);
            let seen = self.tell_all(buffer, tell)?;
            if !seen.own && (seen.relevant || !seen.other) {
                return Ok(());
            }
        }
    }

    /// Tells all changes up to now. Another thread that does so is waited for.
    fn tell_all(&self, buffer: &mut [u8], tell: &impl Fn(Change<'_>)) -> Result<Seen, Errno> {
        let _turn = self.turn(|| ());
        self.tell_read(buffer, tell)
    }

    /// Tells all changes that can be read, for the thread whose turn it is.
    fn tell_read(&self, buffer: &mut [u8], tell: &impl Fn(Change<'_>)) -> Result<Seen, Errno> {
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        let mut seen = Seen::default();
        loop {
            let events = self.watcher.read(buffer).map_err(|error| errno(&error))?;
            if events.is_empty() {
                return Ok(seen);
            }
            for event in events {
                seen.note(&event, own);
                if let Some(change) = self.change(&event, own) {
                    seen.relevant = true;
                    tell(change);
                }
            }
        }
    }

    /// One thread tells at a time; `be_late` is called if that takes long. Waiting asleep would let the program go on
    /// that made the change.
    fn turn(&self, be_late: impl FnOnce()) -> MutexGuard<'_, ()> {
        let start = Instant::now();
        while start.elapsed() < SPINNING {
            if let Ok(turn) = self.telling.try_lock() {
                return turn;
            }
            std::hint::spin_loop();
        }
        be_late();
        lock(&self.telling)
    }

    fn change<'a>(&self, told: &Told<'a>, own: i32) -> Option<Change<'a>> {
        let Told::Change { pid, what, is_folder, system, folder, name } = *told else {
            return Some(Change::Everything);
        };
        if pid == own {
            return None;
        }
        let Some(spot) = lock(&self.folders).get(&(system, folder)).copied() else {
            return (name == b".").then_some(Change::Unwatched(folder));
        };
        Some(match (what, name) {
            (What::File, b".") => Change::Folder(spot.0, folder),
            (What::File, name) => Change::File(spot, name),
            (_, name) if is_folder => Change::FolderName(spot, name),
            (_, name) => Change::Name(spot, name, what),
        })
    }
}

/// Whether our threads may go before the programs that make changes.
pub(crate) fn may_be_first() -> Result<(), Errno> {
    let first = std::thread::spawn(threads::set_fifo_policy).join();
    first.map_err(|_| Errno::AGAIN)?.map_err(|error| errno(&error))
}

/// Keeps the calling thread on a processor, where it goes before the program that runs there.
pub(crate) fn stay_first_on(processor: usize) -> Result<(), Errno> {
    let mut only = CpuSet::new();
    only.set(processor);
    sched_setaffinity(None, &only)?;
    threads::set_fifo_policy().map_err(|error| errno(&error))
}

/// The processors that this process may use.
pub(crate) fn processors() -> impl Iterator<Item = usize> {
    // There is one at least, whatever its number.
    let allowed = sched_getaffinity(None).ok();
    let may_use = move |&processor: &usize| {
        allowed.map_or(processor == 0, |allowed| allowed.is_set(processor))
    };
    (0..CpuSet::MAX_CPU).filter(may_use)
}

fn key(place: &OwnedFd) -> Result<FolderKey, Errno> {
    let handle = FileHandle::of(place.as_fd(), c"").map_err(|error| errno(&error))?;
    let system = fanotify::system_id(place.as_fd()).map_err(|error| errno(&error))?;
    Ok((system, handle))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::process::Command;
    use std::sync::mpsc;
    use thruway_testing::skipped;

    /// Only to end a test that would hang.
    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn own_changes_are_skipped_and_others_are_told() {
        let Ok(watch) = Watch::new() else {
            return skipped("no fanotify for this user");
        };
        let folder = tempfile::tempdir().unwrap();
        let place: OwnedFd = File::open(folder.path()).unwrap().into();
        watch.add((InodeId(7), 0), &place).unwrap();
        assert_eq!(watch.len(), 1);
        fs::write(folder.path().join("own"), "").unwrap();
        let mut buffer = [0; 4096];
        let events = watch.watcher.read(&mut buffer).unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!(events.clone().filter_map(|event| watch.change(&event, own)).count(), 0);
        let mut told = events.filter_map(|event| watch.change(&event, own + 1));
        assert_eq!(told.next(), Some(Change::Name((InodeId(7), 0), b"own", What::Came)));
        assert_eq!(watch.change(&Told::Overflow, own), Some(Change::Everything));
        watch.remove(InodeId(7), &place);
        assert_eq!(watch.len(), 0);
    }

    /// The second thread begins to wait when the change was read.
    #[test]
    fn a_change_that_another_thread_is_telling_is_waited_for() {
        let Ok(watch) = Watch::new() else {
            return skipped("no fanotify for this user");
        };
        let folder = tempfile::tempdir().unwrap();
        let place: OwnedFd = File::open(folder.path()).unwrap().into();
        watch.add((InodeId(7), 0), &place).unwrap();
        let watch: &Watch = Box::leak(Box::new(watch));
        let (told, is_told) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let first = Mutex::new(Some((told, may_go_on)));
        std::thread::spawn(move || {
            watch.run(|_| {
                let Some((told, may_go_on)) = lock(&first).take() else { return };
                told.send(()).unwrap();
                let _ = may_go_on.recv();
            })
        });
        // Another process makes it, since our own are passed over; one event, which the first thread reads.
        let made = Command::new("mkdir").arg(folder.path().join("name")).status();
        assert!(made.unwrap().success());
        is_told.recv_timeout(PATIENCE).unwrap();
        let (late, is_late) = mpsc::channel();
        let late = Mutex::new(late);
        std::thread::spawn(move || {
            watch.run(|change| lock(&late).send(change == Change::Late).unwrap())
        });
        assert_eq!(is_late.recv_timeout(PATIENCE), Ok(true));
        drop(go_on);
    }
}
