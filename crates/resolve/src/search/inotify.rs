//! Reports changes of folders on Linux, by inotify.
//!
//! inotify watches folders rather than paths. So each folder on the way to a base is watched for the entry
//! that continues the path. Symbolic links are followed step by step, and the folders on their way are
//! watched too. inotify does not report a mount over a folder, so the table of mounts is polled in the same
//! call.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::fs::{CWD, readlinkat, statfs};
use rustix::io::Errno;

use super::Watch;
use super::interests::{Interests, Onward};
use super::mounts::Mounts;
use super::posix::KEEP_STAMPS;

/// The number of symbolic links that the kernel follows in one path.
const LINKS_MAX: usize = 40;

/// The size of the buffer for events.
const EVENTS_BYTES: usize = 16 * 1024;

/// Watches folders by inotify.
#[derive(Debug)]
pub struct Inotify {
    events: OwnedFd,
    mounts: Mounts,
    /// The bases affected by each watch.
    interests: HashMap<i32, Interests>,
    /// The watches of each base.
    watches: HashMap<usize, Vec<Step>>,
}

/// A folder on the way to a base, or the base itself.
#[derive(Debug)]
struct Step {
    watch: i32,
    folder: Vec<u8>,
    onward: Onward,
}

impl Inotify {
    /// Opens a queue of events.
    ///
    /// # Errors
    /// There are too many queues, or `/proc` is not available.
    pub fn new() -> io::Result<Self> {
        let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let mounts = Mounts::new()?;
        Ok(Self { events, mounts, interests: HashMap::new(), watches: HashMap::new() })
    }

    /// The queue's descriptor.
    #[cfg(test)]
    pub(super) fn descriptor(&self) -> i32 {
        std::os::fd::AsRawFd::as_raw_fd(&self.events)
    }

    /// Watches every folder on the way to `base`, which is absolute, and then the base itself.
    fn walk(&mut self, number: usize, base: &[u8]) -> Result<(), Errno> {
        let mut folder = Vec::from(b"/");
        let mut rest: Vec<Vec<u8>> = components(base);
        let mut links = 0;
        while let Some(component) = rest.pop() {
            if component == b".." {
                let parent = folder.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                folder.truncate(parent.max(1));
                continue;
            }
            // If a component is missing or not a folder, its parent's watch reports the change.
            match self.watch_folder(number, &folder, Some(component.clone())) {
                Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
                watched => watched?,
            }
            let length = folder.len();
            if !folder.ends_with(b"/") {
                folder.push(b'/');
            }
            folder.extend_from_slice(&component);
            match readlinkat(CWD, &folder, Vec::new()) {
                Ok(target) => {
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(Errno::LOOP);
                    }
                    let target = target.as_bytes();
                    folder.truncate(if target.starts_with(b"/") { 1 } else { length });
                    rest.extend(components(target));
                }
                // A missing component will be reported by its parent's watch.
                Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
                // The component is not a link.
                Err(Errno::INVAL) => {}
                Err(errno) => return Err(errno),
            }
        }
        match self.watch_folder(number, &folder, None) {
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
            watched => watched,
        }
    }

    fn watch_folder(&mut self, number: usize, folder: &[u8], onward: Onward) -> Result<(), Errno> {
        let changes = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::ATTRIB
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR
            | WatchFlags::DONT_FOLLOW
            | WatchFlags::EXCL_UNLINK;
        if !KEEP_STAMPS.contains(&statfs(folder)?.f_type) {
            return Err(Errno::NOTSUP);
        }
        let watch = inotify::add_watch(&self.events, folder, changes)?;
        self.interests.entry(watch).or_default().insert(number, onward.clone());
        let step = Step { watch, folder: folder.to_vec(), onward };
        self.watches.entry(number).or_default().push(step);
        Ok(())
    }

    /// Removes the watches that only this base needs.
    fn unwatch(&mut self, number: usize) {
        for Step { watch, onward, .. } in self.watches.remove(&number).unwrap_or_default() {
            let Some(interests) = self.interests.get_mut(&watch) else { continue };
            interests.remove(number, onward);
            if interests.is_empty() {
                self.interests.remove(&watch);
                // Fails for a removed folder, whose watch is gone already.
                let _ = inotify::remove_watch(&self.events, watch);
            }
        }
    }

    /// Polls both sources in one call. Returns whether there are events, and whether mounts have changed.
    fn poll(&self) -> (bool, bool) {
        let mut sources = [
            PollFd::new(&self.events, PollFlags::IN),
            PollFd::from_borrowed_fd(self.mounts.as_fd(), PollFlags::PRI),
        ];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut sources, Some(&at_once)) {
            Ok(_) => {
                let [events, mounts] = sources.map(|source| source.revents());
                (!events.is_empty(), mounts.intersects(PollFlags::PRI | PollFlags::ERR))
            }
            // After an interruption, events are assumed.
            Err(_) => (true, false),
        }
    }

    /// Adds the bases that lead through a folder on which something was mounted or unmounted.
    fn read_mounts(&mut self, numbers: &mut Vec<usize>) {
        let Ok(changed) = self.mounts.changed() else {
            return numbers.extend(self.watches.keys());
        };
        let is_changed = |step: &Step| changed.contains(&step.folder);
        let bases = self.watches.iter().filter(|(_, steps)| steps.iter().any(is_changed));
        numbers.extend(bases.map(|(number, _)| number));
    }

    fn read_events(&self, numbers: &mut Vec<usize>) {
        let mut room = [MaybeUninit::uninit(); EVENTS_BYTES];
        let mut events = Reader::new(&self.events, &mut room);
        while let Ok(event) = events.next() {
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                numbers.extend(self.watches.keys());
                continue;
            }
            let Some(interests) = self.interests.get(&event.wd()) else { continue };
            match event.file_name() {
                Some(name) => {
                    // A change of permissions does not affect a listing. Permissions are checked when an
                    // entry is looked at.
                    let is_listed = !event.events().contains(ReadFlags::ATTRIB);
                    numbers.extend(interests.at_folder().filter(|_| is_listed));
                    numbers.extend(interests.through(name.to_bytes()));
                }
                None => numbers.extend(interests.all()),
            }
        }
    }
}

impl Watch for Inotify {
    fn watch(&mut self, number: usize, base: &[u8]) -> bool {
        self.unwatch(number);
        // A relative base changes with the working directory.
        let is_watched = base.starts_with(b"/") && self.walk(number, base).is_ok();
        if !is_watched {
            self.unwatch(number);
        }
        is_watched
    }

    fn changed(&mut self, numbers: &mut Vec<usize>) {
        let (events, mounts) = self.poll();
        if events {
            self.read_events(numbers);
        }
        if mounts {
            self.read_mounts(numbers);
        }
    }
}

/// Returns the components of a path in reverse order.
fn components(path: &[u8]) -> Vec<Vec<u8>> {
    path.rsplit(|byte| *byte == b'/')
        .filter(|component| !matches!(*component, b"" | b"."))
        .map(<[u8]>::to_vec)
        .collect()
}
