//! Changes of folders on Linux, as inotify tells them.
//!
//! inotify watches folders and not paths. So each folder that a path leads through is watched for the
//! one entry that the path goes on with. A symbolic link is followed step by step, and the folders on
//! its way are watched too. inotify says nothing of a mount over a folder. The table of mounts does,
//! and is asked in the same call.

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

/// Links that one path may lead through, as in the kernel.
const LINKS_MAX: usize = 40;

/// Room for events that are read at once.
const EVENTS_BYTES: usize = 16 * 1024;

/// Watches folders through inotify.
#[derive(Debug)]
pub struct Inotify {
    events: OwnedFd,
    mounts: Mounts,
    /// The bases that are interested in a watch, by watch.
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
    /// There are too many queues, or no `/proc` to tell of mounts.
    pub fn new() -> io::Result<Self> {
        let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let mounts = Mounts::new()?;
        Ok(Self { events, mounts, interests: HashMap::new(), watches: HashMap::new() })
    }

    /// The number of the queue's descriptor.
    #[cfg(test)]
    pub(super) fn descriptor(&self) -> i32 {
        std::os::fd::AsRawFd::as_raw_fd(&self.events)
    }

    /// Watches every folder on the way to `base`, which is absolute, and then the folder itself.
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
            // What is no folder, or gone, is told by the folder that it is in.
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
                // What is not there yet will be told by the folder that it will be in.
                Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
                // It is no link.
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

    /// Forgets what was watched for a base alone.
    fn unwatch(&mut self, number: usize) {
        for Step { watch, onward, .. } in self.watches.remove(&number).unwrap_or_default() {
            let Some(interests) = self.interests.get_mut(&watch) else { continue };
            interests.remove(number, onward);
            if interests.is_empty() {
                self.interests.remove(&watch);
                // A folder that is gone has taken its watch along.
                let _ = inotify::remove_watch(&self.events, watch);
            }
        }
    }

    /// One call: are there events, and has the table of mounts changed?
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
            // Interrupted: what is not known is asked for.
            Err(_) => (true, false),
        }
    }

    /// Bases that lead through a folder on which something was mounted, or is no more.
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
                    // What may be done with an entry is asked when it is looked at.
                    let is_listed = !event.events().contains(ReadFlags::ATTRIB);
                    numbers.extend(interests.is().filter(|_| is_listed));
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
        // A relative base is another one with each change of the current folder.
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

/// The components of a path, the last one first.
fn components(path: &[u8]) -> Vec<Vec<u8>> {
    path.rsplit(|byte| *byte == b'/')
        .filter(|component| !matches!(*component, b"" | b"."))
        .map(<[u8]>::to_vec)
        .collect()
}
