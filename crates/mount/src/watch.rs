//! Being told what others change in the sources.
//!
//! Each folder that the kernel holds names of is watched, or the whole file system if that is what a
//! source is: every read of a file below a watched folder costs a look at that folder. What our own
//! process changes is told with our own number and skipped: the kernel knows it already.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use thruway_sys::fanotify::{self, SystemId, Told, Watcher, What};
use thruway_sys::handle::FileHandle;

use crate::actor::errno;
use crate::inodes::{InodeId, lock};

/// How long changes are collected before they are looked at. A file that is written in many steps is
/// then looked at once, and its change time is old enough to be told apart from the next one.
const COLLECTING: Duration = Duration::from_millis(30);
/// Room for what one read gives: some thousand changes.
const BUFFER_BYTES: usize = 256 * 1024;

/// A folder as the kernel tells it.
type FolderKey = (SystemId, FileHandle);

#[derive(Debug)]
pub(crate) struct Watch {
    watcher: Watcher,
    /// File systems that are watched as a whole.
    whole: HashSet<SystemId>,
    folders: Mutex<HashMap<FolderKey, Spot>>,
}

/// A folder that the kernel knows, and the branch whose part of it is watched.
pub(crate) type Spot = (InodeId, u16);

/// A change that somebody else has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    /// A name in the folder leads elsewhere.
    Name(Spot, &'a [u8]),
    /// What a name in the folder leads to was changed.
    File(Spot, &'a [u8]),
    /// The folder's own attributes were changed.
    Folder(InodeId),
    /// Anything may have changed.
    Everything,
}

impl Watch {
    /// Watches nothing yet.
    pub(crate) fn new() -> Result<Self, Errno> {
        let watcher = Watcher::new().map_err(|error| errno(&error))?;
        Ok(Self { watcher, whole: HashSet::default(), folders: Mutex::default() })
    }

    /// Watches the whole file system that this folder is on.
    pub(crate) fn add_whole(&mut self, place: &OwnedFd) -> Result<(), Errno> {
        let system = fanotify::system_id(place.as_fd()).map_err(|error| errno(&error))?;
        self.watcher.watch_whole(place.as_fd()).map_err(|error| errno(&error))?;
        self.whole.insert(system);
        Ok(())
    }

    /// Watches a folder that the kernel knows under this number.
    pub(crate) fn add(&self, spot: Spot, place: &OwnedFd) -> Result<(), Errno> {
        let key = key(place)?;
        // Noted before the first change can be told.
        lock(&self.folders).insert(key, spot);
        if self.whole.contains(&key.0) {
            return Ok(());
        }
        self.watcher.watch(place.as_fd()).map_err(|error| {
            lock(&self.folders).remove(&key);
            errno(&error)
        })
    }

    /// The kernel has forgotten the folder.
    pub(crate) fn remove(&self, place: &OwnedFd) {
        let key = key(place);
        if !key.is_ok_and(|key| self.whole.contains(&key.0)) {
            // A folder that is gone takes its watch with it.
            let _ = self.watcher.unwatch(place.as_fd());
        }
        if let Ok(key) = key {
            lock(&self.folders).remove(&key);
        }
    }

    /// How many folders are watched.
    pub(crate) fn len(&self) -> usize {
        lock(&self.folders).len()
    }

    /// Tells `tell` each change that others make, for ever.
    pub(crate) fn run(&self, mut tell: impl FnMut(Change<'_>)) -> Result<(), Errno> {
        let mut buffer = vec![0; BUFFER_BYTES];
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        loop {
            match poll(&mut [PollFd::new(&self.watcher, PollFlags::IN)], None) {
                Ok(_) => std::thread::sleep(COLLECTING),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno),
            }
            loop {
                let events = self.watcher.read(&mut buffer).map_err(|error| errno(&error))?;
                if events.is_empty() {
                    break;
                }
                for event in events {
                    if let Some(change) = self.change(&event, own) {
                        tell(change);
                    }
                }
            }
        }
    }

    fn change<'a>(&self, told: &Told<'a>, own: i32) -> Option<Change<'a>> {
        let Told::Change { pid, what, system, folder, name } = *told else {
            return Some(Change::Everything);
        };
        if pid == own {
            return None;
        }
        let spot = *lock(&self.folders).get(&(system, folder))?;
        Some(match (what, name) {
            (What::File, b".") => Change::Folder(spot.0),
            (What::File, name) => Change::File(spot, name),
            (What::Name, name) => Change::Name(spot, name),
        })
    }
}

fn key(place: &OwnedFd) -> Result<FolderKey, Errno> {
    let handle = FileHandle::of(place.as_fd(), c"").map_err(|error| errno(&error))?;
    let system = fanotify::system_id(place.as_fd()).map_err(|error| errno(&error))?;
    Ok((system, handle))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skipped::skipped;
    use std::fs::{self, File};

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
        assert_eq!(told.next(), Some(Change::Name((InodeId(7), 0), b"own")));
        assert_eq!(watch.change(&Told::Overflow, own), Some(Change::Everything));
        watch.remove(&place);
        assert_eq!(watch.len(), 0);
    }
}
