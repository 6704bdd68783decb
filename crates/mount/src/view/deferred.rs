//! What the kernel is told a moment later, by a thread that no program waits for.
//!
//! Attributes of a closed file hold for long. After an open they are to hold for a moment only, as others may write
//! to the file and not close it. Most files are closed before that matters, so the kernel is told when a file has
//! been open for a while. And a name that a change was told of may be gone by then: that takes a look at the disk.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::inodes::{InodeId, lock};
use crate::watch::WatchKey;

/// Files that were opened since the last round, at most: 64 KiB. Others are told at once.
const OPENED_MAX: usize = 4096;
/// Names to be looked at, at most. More of them are doubted with all others.
const NAMES_MAX: usize = 1024;

/// What is to be told later.
#[derive(Debug, Default)]
pub(super) struct Deferred {
    waiting: Mutex<Waiting>,
    added: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Files of which the kernel may hold attributes from before they were opened.
    opened: HashMap<InodeId, Opened>,
    /// When the first of them was opened.
    since: Option<Instant>,
    /// Names of files that others have changed.
    names: Vec<(WatchKey, CString)>,
}

/// What is known of a file that was opened since the last round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Opened {
    /// A program writes to it through the mount.
    pub(super) is_written: bool,
    /// The kernel was told of changes as if they had come through the mount.
    pub(super) is_trusted: bool,
}

/// What is to be told now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    Opened(HashMap<InodeId, Opened>),
    Names(Vec<(WatchKey, CString)>),
}

impl Deferred {
    /// Adds a file that was opened just now; `false` if there is no room.
    pub(super) fn add_opened(&self, id: InodeId, is_written: bool) -> bool {
        let mut waiting = lock(&self.waiting);
        if waiting.opened.len() >= OPENED_MAX {
            return false;
        }
        waiting.opened.entry(id).or_default().is_written |= is_written;
        if waiting.since.is_none() {
            waiting.since = Some(Instant::now());
            self.added.notify_one();
        }
        true
    }

    /// What is known of the file if it was opened just now: the kernel is going to be told if it stays open. If a
    /// program writes to it, what others do to it meanwhile is seen then, too.
    pub(super) fn trust_opened(&self, id: InodeId) -> Option<Opened> {
        let mut waiting = lock(&self.waiting);
        let opened = waiting.opened.get_mut(&id)?;
        opened.is_trusted |= opened.is_written;
        Some(*opened)
    }

    /// Adds a name that has to be looked at; `false` if there is no room.
    pub(super) fn add_name(&self, key: WatchKey, name: CString) -> bool {
        let mut waiting = lock(&self.waiting);
        if waiting.names.len() >= NAMES_MAX {
            return false;
        }
        waiting.names.push((key, name));
        self.added.notify_one();
        true
    }

    /// Waits for something that is due: names at once, files `after` the first of them was opened.
    pub(super) fn next(&self, after: Duration) -> Due {
        let mut waiting = lock(&self.waiting);
        loop {
            if !waiting.names.is_empty() {
                return Due::Names(std::mem::take(&mut waiting.names));
            }
            let Some(since) = waiting.since else {
                waiting = self.added.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = after.saturating_sub(since.elapsed());
            if left.is_zero() {
                waiting.since = None;
                return Due::Opened(std::mem::take(&mut waiting.opened));
            }
            let woken = self.added.wait_timeout(waiting, left);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_due_at_once_and_files_later() {
        let deferred = Deferred::default();
        let key = (InodeId(7), 0);
        assert!(deferred.add_opened(InodeId(8), false));
        assert!(deferred.add_opened(InodeId(8), false));
        assert!(deferred.add_name(key, c"name".into()));
        let day = Duration::from_secs(86_400);
        assert_eq!(deferred.next(day), Due::Names(vec![(key, c"name".into())]));
        assert_eq!(
            deferred.next(Duration::from_millis(1)),
            Due::Opened([(InodeId(8), Opened::default())].into())
        );
    }

    #[test]
    fn who_writes_to_a_file_is_trusted_until_the_file_is_due() {
        let deferred = Deferred::default();
        let (read, written) = (InodeId(7), InodeId(8));
        assert!(deferred.add_opened(read, false) && deferred.add_opened(written, true));
        assert_eq!(deferred.trust_opened(read), Some(Opened::default()));
        let trusted = Opened { is_written: true, is_trusted: true };
        assert_eq!(deferred.trust_opened(written), Some(trusted));
        let due = [(read, Opened::default()), (written, trusted)];
        assert_eq!(deferred.next(Duration::from_millis(1)), Due::Opened(due.into()));
        assert_eq!(deferred.trust_opened(written), None);
    }

    #[test]
    fn no_more_is_deferred_than_there_is_room_for() {
        let deferred = Deferred::default();
        let opened = (0..=OPENED_MAX as u64).map(|id| deferred.add_opened(InodeId(id), false));
        assert_eq!(opened.filter(|added| *added).count(), OPENED_MAX);
        let name = |_| deferred.add_name((InodeId(7), 0), c"name".into());
        assert_eq!((0..=NAMES_MAX).map(name).filter(|added| *added).count(), NAMES_MAX);
    }
}
