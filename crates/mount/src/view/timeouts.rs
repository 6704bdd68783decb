//! Decides how long the kernel may cache names and attributes.
//!
//! In a watched folder, names are cached until they are invalidated. So are attributes, with two exceptions. A file
//! with several names may be changed by a name in another folder. Also, there is no event while a file is written to
//! and not closed. The attributes of an open file are cached for a moment, and not at all while other programs write to
//! it.

use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Statx, StatxTimestamp};

use super::deferred::DeferredInvalidations;
use super::folder::Folder;
use super::stat::now;
use crate::inodes::{InodeId, Inodes};
use crate::plan::Changes;

/// The timeout for the attributes of a file that is open through the mount. `tail -f` asks once a second, and should
/// get fresh attributes each time.
pub(super) const OPEN_TIMEOUT: Duration = Duration::from_millis(500);

/// The maximum timeout for the attributes of a file that is not open through the mount.
const CLOSED_TIMEOUT: Duration = Duration::from_secs(30);

/// A program may write to a file at intervals without closing it. Its next write is noticed after this fraction of the
/// interval.
const PAUSE_PARTS: u64 = 8;

/// The time in nanoseconds for which a program may continue to write after a change behind the mount.
const STILL_WRITING: u64 = 2_000_000_000;

/// The timeout for names if the kernel cannot be notified that a policy now hides other names.
const UNCERTAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The first protocol version, 7.x, with a notification that invalidates all names.
pub(super) const EPOCH_MINOR: u32 = 44;

const TYPE: u16 = 0o170_000;
const FOLDER: u16 = 0o040_000;
const SETUID_OR_SETGID: u16 = 0o6000;

/// The origin of a file's last change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChangedBy {
    /// The current request.
    Us,
    Unknown,
}

/// Timeouts of the kernel's caches.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeouts {
    pub(crate) entry: Duration,
    pub(crate) attributes: Duration,
}

/// Decides the timeouts of names and attributes.
#[derive(Debug)]
pub(super) struct CacheTimeouts {
    pub(super) inodes: Arc<Inodes>,
    pub(super) deferred: Arc<DeferredInvalidations>,
    pub(super) longest: Timeouts,
    pub(super) changes: Changes,
    pub(super) is_frozen: bool,
    /// Whether a new policy may hide other names and this kernel cannot be notified.
    pub(super) cannot_invalidate_hidden: bool,
}

impl CacheTimeouts {
    /// Returns the timeout of a name in the folder, or of its absence.
    pub(super) fn name_timeout(&self, folder: &Folder) -> Duration {
        let longest = self.timeouts_in(folder.is_watched).entry;
        // Other names may be hidden later, and older kernels cannot be notified.
        if self.cannot_invalidate_hidden { longest.min(UNCERTAIN_TIMEOUT) } else { longest }
    }

    /// Returns the timeouts in a folder according to the option `--changes`.
    fn timeouts_in(&self, is_watched: bool) -> Timeouts {
        let longest = self.longest;
        let holds = match self.changes {
            _ if self.is_frozen => true,
            Changes::Told => is_watched,
            Changes::Asked => false,
            Changes::Ignored => true,
        };
        let nothing = Timeouts { entry: Duration::ZERO, attributes: Duration::ZERO };
        if holds { longest } else { nothing }
    }

    /// Whether attributes are cached although their changes are not reported.
    pub(super) fn is_kept_unreported(&self) -> bool {
        self.is_frozen || self.changes == Changes::Ignored
    }

    /// Returns the timeouts of a file in a folder, and records its attributes as those that the kernel has.
    pub(super) fn timeouts(
        &self,
        id: InodeId,
        is_watched: bool,
        stat: &Statx,
        changed_by: ChangedBy,
    ) -> Timeouts {
        let mut timeouts = self.timeouts_in(is_watched);
        if self.is_frozen {
            return timeouts;
        }
        let change = change_time(stat);
        self.inodes.set_cached_fingerprint(id, fingerprint(stat));
        if changed_by == ChangedBy::Us {
            self.inodes.set_own_changes_until(id, change);
        }
        if stat.stx_mode & TYPE != FOLDER && self.changes != Changes::Ignored {
            let is_open = self.inodes.is_open(id);
            // The attributes are invalidated later if the file stays open.
            let opened = self.deferred.trust_opened(id).filter(|_| is_open);
            let is_open = is_open && opened.is_none();
            let is_ours = change <= self.inodes.own_changes_until(id)
                || opened.is_some_and(|it| it.is_written);
            let hold = hold_for(stat, is_open, is_ours, now());
            timeouts.attributes = timeouts.attributes.min(hold);
        }
        timeouts
    }
}

/// Returns the time of the file's last change in nanoseconds since 1970.
pub(super) fn change_time(stat: &Statx) -> u64 {
    let nanoseconds = |time: &StatxTimestamp| {
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        seconds.wrapping_mul(1_000_000_000).wrapping_add(u64::from(time.tv_nsec))
    };
    nanoseconds(&stat.stx_ctime)
}

/// Returns a hash of all attributes that are reported.
pub(super) fn fingerprint(stat: &Statx) -> u64 {
    let time = |time: &StatxTimestamp| time.tv_sec.cast_unsigned() << 30 ^ u64::from(time.tv_nsec);
    let owner = u64::from(stat.stx_uid) << 32 | u64::from(stat.stx_gid);
    let kind = u64::from(stat.stx_nlink) << 32 | u64::from(stat.stx_mode);
    let all = [time(&stat.stx_ctime), time(&stat.stx_mtime), stat.stx_size, owner, kind];
    all.iter().fold(0, |mixed: u64, word| {
        let mixed = (mixed ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 29)
    })
}

/// Returns the timeout of attributes whose change may cause no event. `is_open` says whether the file is open through
/// the mount, `is_ours` whether its last change came through the mount.
fn hold_for(stat: &Statx, is_open: bool, is_ours: bool, now: u64) -> Duration {
    // A write to a backing file clears setuid and setgid without updating the cached attributes.
    let is_setid = stat.stx_mode & SETUID_OR_SETGID != 0;
    let age = now.saturating_sub(change_time(stat));
    let may_be_written = !is_ours && age < STILL_WRITING;
    if is_setid || stat.stx_nlink > 1 || may_be_written {
        Duration::ZERO
    } else if is_open {
        OPEN_TIMEOUT
    } else if is_ours {
        CLOSED_TIMEOUT
    } else {
        Duration::from_nanos(age / PAUSE_PARTS).clamp(OPEN_TIMEOUT, CLOSED_TIMEOUT)
    }
}

#[cfg(test)]
mod tests {
    use super::super::stat::stat_fd;
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn changed_at(seconds: i64) -> Statx {
        let mut stat = stat_fd(std::fs::File::open("/proc/self/exe").unwrap()).unwrap();
        stat.stx_mode = 0o100_644;
        stat.stx_nlink = 1;
        stat.stx_ctime.tv_sec = seconds;
        stat.stx_ctime.tv_nsec = 0;
        stat
    }

    #[test]
    fn attributes_of_a_file_that_may_still_be_written_to_are_not_cached() {
        let stat = changed_at(100);
        assert_eq!(hold_for(&stat, false, false, 101 * SECOND), Duration::ZERO);
        assert_eq!(hold_for(&stat, false, false, 99 * SECOND), Duration::ZERO);
        assert_eq!(hold_for(&stat, false, true, 101 * SECOND), CLOSED_TIMEOUT);
        assert_eq!(hold_for(&stat, true, true, 101 * SECOND), OPEN_TIMEOUT);
        assert_eq!(hold_for(&stat, true, false, 9999 * SECOND), OPEN_TIMEOUT);
        assert_eq!(hold_for(&stat, false, false, 103 * SECOND), OPEN_TIMEOUT);
        assert_eq!(hold_for(&stat, false, false, 180 * SECOND), Duration::from_secs(10));
        assert_eq!(hold_for(&stat, false, false, 9999 * SECOND), CLOSED_TIMEOUT);
    }

    #[test]
    fn attributes_that_may_change_without_an_event_are_not_cached() {
        let mut stat = changed_at(0);
        stat.stx_nlink = 2;
        assert_eq!(hold_for(&stat, false, true, SECOND), Duration::ZERO);
        let mut stat = changed_at(0);
        stat.stx_mode |= 0o4000;
        assert_eq!(hold_for(&stat, false, true, SECOND), Duration::ZERO);
    }
}
