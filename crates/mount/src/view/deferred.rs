//! Invalidations a moment later, by a thread for which no program waits.
//!
//! The kernel may cache attributes of a closed file for long. After an open that is too long, as other programs may
//! write to the file without closing it. But most files are closed before that matters. So the attributes are
//! invalidated once a file has been open for a while. And a changed name may be gone already when it is invalidated:
//! then it is looked up on the disk, here.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::inodes::{InodeId, lock};
use crate::watch::WatchKey;

/// Most files in one round: 64 KiB. For others the attributes are invalidated at once.
const OPENED_MAX: usize = 4096;
/// Most names that wait for a look-up. If there are more, all names are invalidated.
const NAMES_MAX: usize = 1024;

/// The invalidations that are deferred.
#[derive(Debug, Default)]
pub(super) struct Deferred {
    waiting: Mutex<Waiting>,
    added: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Files whose cached attributes may be from before they were opened.
    opened: HashMap<InodeId, Opened>,
    /// When the first of them was opened.
    since: Option<Instant>,
    /// Names of files that other programs have changed.
    names: Vec<(WatchKey, CString)>,
}

/// The state of a file that was opened since the last round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Opened {
    /// A program writes to it through the mount.
    pub(super) is_written: bool,
    /// The kernel caches attributes on the assumption that all changes came through the mount.
    pub(super) is_trusted: bool,
}

/// Invalidations that are due.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    Opened(HashMap<InodeId, Opened>),
    Names(Vec<(WatchKey, CString)>),
}

impl Deferred {
    /// Adds a file that was just opened; `false` if there is no room.
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

    /// The state of a file that was opened since the last round. If a program writes to it, changes are assumed to be
    /// its own until the next round.
    pub(super) fn trust_opened(&self, id: InodeId) -> Option<Opened> {
        let mut waiting = lock(&self.waiting);
        let opened = waiting.opened.get_mut(&id)?;
        opened.is_trusted |= opened.is_written;
        Some(*opened)
    }

    /// Adds a name that has to be looked up; `false` if there is no room.
    pub(super) fn add_name(&self, key: WatchKey, name: CString) -> bool {
        let mut waiting = lock(&self.waiting);
        if waiting.names.len() >= NAMES_MAX {
            return false;
        }
        waiting.names.push((key, name));
        self.added.notify_one();
        true
    }

    /// Waits for what is due: names at once, files `after` the first of them was opened.
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
    fn changes_to_a_written_file_are_trusted_until_the_file_is_due() {
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
    fn no_more_is_deferred_than_fits() {
        let deferred = Deferred::default();
        let opened = (0..=OPENED_MAX as u64).map(|id| deferred.add_opened(InodeId(id), false));
        assert_eq!(opened.filter(|added| *added).count(), OPENED_MAX);
        let name = |_| deferred.add_name((InodeId(7), 0), c"name".into());
        assert_eq!((0..=NAMES_MAX).map(name).filter(|added| *added).count(), NAMES_MAX);
    }
}
