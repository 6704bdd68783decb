//! Invalidates caches with a delay, on a thread for which no program waits.
//!
//! The kernel may cache the attributes of a closed file for long. Once the file is open, that is too long, since other
//! programs may write to it without closing it. But most files are closed before that matters, so attributes are
//! invalidated only once a file has been open for a while.
//!
//! Also, a changed name may already be gone when it is invalidated, so this thread looks such names up on disk.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::inodes::{InodeId, lock};
use crate::watch::WatchKey;

/// The maximum number of files in a round: 64 KiB. The attributes of further files are invalidated at once.
const OPENED_MAX: usize = 4096;
/// The maximum number of names that wait for a lookup. If there are more, all names are invalidated.
const NAMES_MAX: usize = 1024;

/// The queue of deferred invalidations.
#[derive(Debug, Default)]
pub(super) struct DeferredInvalidations {
    queue: Mutex<Queue>,
    added: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    /// Files whose cached attributes may be older than the open.
    opened: HashMap<InodeId, OpenedFile>,
    /// The time when the first of these files was opened.
    since: Option<Instant>,
    /// Names of files that other programs have changed.
    names: Vec<(WatchKey, CString)>,
}

/// The state of a file that was opened since the last round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct OpenedFile {
    /// Whether a program writes to the file through the mount.
    pub(super) is_written: bool,
    /// Whether the kernel caches attributes on the assumption that all changes came through the mount.
    pub(super) is_trusted: bool,
}

/// Invalidations that are due.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DueInvalidations {
    Files(HashMap<InodeId, OpenedFile>),
    Names(Vec<(WatchKey, CString)>),
}

impl DeferredInvalidations {
    /// Adds a file that was just opened. Returns `false` if there is no room.
    pub(super) fn add_opened(&self, id: InodeId, is_written: bool) -> bool {
        let mut queue = lock(&self.queue);
        if queue.opened.len() >= OPENED_MAX {
            return false;
        }
        queue.opened.entry(id).or_default().is_written |= is_written;
        if queue.since.is_none() {
            queue.since = Some(Instant::now());
            self.added.notify_one();
        }
        true
    }

    /// Returns the state of a file that was opened since the last round. If a program writes to the file, all changes
    /// until the next round are attributed to that program.
    pub(super) fn trust_opened(&self, id: InodeId) -> Option<OpenedFile> {
        let mut queue = lock(&self.queue);
        let opened = queue.opened.get_mut(&id)?;
        opened.is_trusted |= opened.is_written;
        Some(*opened)
    }

    /// Adds a name that has to be looked up. Returns `false` if there is no room.
    pub(super) fn add_name(&self, key: WatchKey, name: CString) -> bool {
        let mut queue = lock(&self.queue);
        if queue.names.len() >= NAMES_MAX {
            return false;
        }
        queue.names.push((key, name));
        self.added.notify_one();
        true
    }

    /// Waits for invalidations to become due: names at once, and files `after` the first of them was opened.
    pub(super) fn next(&self, after: Duration) -> DueInvalidations {
        let mut queue = lock(&self.queue);
        loop {
            if !queue.names.is_empty() {
                return DueInvalidations::Names(std::mem::take(&mut queue.names));
            }
            let Some(since) = queue.since else {
                queue = self.added.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = after.saturating_sub(since.elapsed());
            if left.is_zero() {
                queue.since = None;
                return DueInvalidations::Files(std::mem::take(&mut queue.opened));
            }
            let woken = self.added.wait_timeout(queue, left);
            queue = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_due_at_once_and_files_later() {
        let deferred = DeferredInvalidations::default();
        let key = (InodeId(7), 0);
        assert!(deferred.add_opened(InodeId(8), false));
        assert!(deferred.add_opened(InodeId(8), false));
        assert!(deferred.add_name(key, c"name".into()));
        let day = Duration::from_secs(86_400);
        assert_eq!(deferred.next(day), DueInvalidations::Names(vec![(key, c"name".into())]));
        assert_eq!(
            deferred.next(Duration::from_millis(1)),
            DueInvalidations::Files([(InodeId(8), OpenedFile::default())].into())
        );
    }

    #[test]
    fn changes_to_a_written_file_are_trusted_until_the_file_is_due() {
        let deferred = DeferredInvalidations::default();
        let (read, written) = (InodeId(7), InodeId(8));
        assert!(deferred.add_opened(read, false) && deferred.add_opened(written, true));
        assert_eq!(deferred.trust_opened(read), Some(OpenedFile::default()));
        let trusted = OpenedFile { is_written: true, is_trusted: true };
        assert_eq!(deferred.trust_opened(written), Some(trusted));
        let due = [(read, OpenedFile::default()), (written, trusted)];
        assert_eq!(deferred.next(Duration::from_millis(1)), DueInvalidations::Files(due.into()));
        assert_eq!(deferred.trust_opened(written), None);
    }

    #[test]
    fn no_more_is_deferred_than_fits() {
        let deferred = DeferredInvalidations::default();
        let opened = (0..=OPENED_MAX as u64).map(|id| deferred.add_opened(InodeId(id), false));
        assert_eq!(opened.filter(|added| *added).count(), OPENED_MAX);
        let name = |_| deferred.add_name((InodeId(7), 0), c"name".into());
        assert_eq!((0..=NAMES_MAX).map(name).filter(|added| *added).count(), NAMES_MAX);
    }
}
