//! How long the kernel may keep what it is told, and what it must be told again.
//!
//! Names in a folder that is watched hold until we say otherwise. So do attributes, with one
//! exception: of a file that somebody else is writing to, and has not closed yet, nobody is told.
//! A file that was changed lately, and not through the mount, is therefore asked for again soon; the
//! longer ago its last change, the later.

use std::ffi::CString;
use std::time::Duration;

use rustix::fs::{self, Mode, OFlags, Statx, StatxAttributes, StatxTimestamp};
use rustix::io::Errno;
use thruway_fuse::Notification;

use super::folder::{Folder, Spot};
use super::lookup::{Maker, now, stat_name, stat_place};
use super::{Timeouts, View};
use crate::inodes::{Forgotten, InodeId, Watched};
use crate::memory::Count;
use crate::mounts;
use crate::watch::Change;

/// How long the kernel may keep what we are not told the end of.
pub(super) const UNWATCHED_TIMEOUT: Duration = Duration::from_secs(1);

/// Two changes within this time may have the same stamp, nanoseconds.
const TICK_MAX: u64 = 20_000_000;

/// The first protocol that lets us say that any name may lead elsewhere, 7.x.
const EPOCH_MINOR: u32 = 44;

const TYPE: u16 = 0o170_000;
const REGULAR: u16 = 0o100_000;
const SETUID_OR_SETGID: u16 = 0o6000;

impl View {
    /// How long the kernel may keep a name in the folder, or that there is no such name.
    pub(super) fn name_timeout(&self, folder: &Folder) -> Duration {
        let longest = self.behaviour.timeouts.entry;
        // Which names are hidden may change, and older kernels cannot be told.
        let is_certain = self.judge.is_none() || self.agreement.minor >= EPOCH_MINOR;
        if folder.is_watched && is_certain { longest } else { longest.min(UNWATCHED_TIMEOUT) }
    }

    /// How long the kernel may keep what it is told of a file in a folder, and that it was told.
    pub(super) fn timeouts(
        &self,
        id: InodeId,
        is_watched: bool,
        stat: &Statx,
        maker: Maker,
    ) -> Timeouts {
        let mut timeouts = self.behaviour.timeouts;
        if self.behaviour.frozen {
            return timeouts;
        }
        let change = change_time(stat);
        self.inodes.set_told(id, fingerprint(stat));
        if maker == Maker::Us {
            self.inodes.set_ours(id, change);
        }
        // A write that the kernel moves by itself clears setuid and setgid behind the back of the
        // attributes that it holds.
        let is_regular = stat.stx_mode & TYPE == REGULAR;
        if is_regular && stat.stx_mode & SETUID_OR_SETGID != 0 {
            timeouts.attributes = Duration::ZERO;
        }
        if !is_watched {
            timeouts.entry = timeouts.entry.min(UNWATCHED_TIMEOUT);
            timeouts.attributes = timeouts.attributes.min(UNWATCHED_TIMEOUT);
        } else if is_regular && change > self.inodes.ours(id) {
            timeouts.attributes = timeouts.attributes.min(settled_for(change, now()));
        }
        timeouts
    }

    /// What the file's last writer through the mount has done is known: it has closed the file.
    pub(super) fn note_written(&self, id: InodeId) {
        // The clock that stamps changes may be a tick ahead of the one that is read here.
        self.inodes.set_ours(id, now() + TICK_MAX);
    }

    /// Tells the kernel that it holds older attributes. It knows of writes that it moves by itself, and not of
    /// those through a map, whose file is open for reading and writing. Where folders are watched it would be
    /// told by that, too, but later: `make` may ask before.
    pub(super) fn tell_if_changed(&self, id: InodeId) {
        let is_moved_by_us = || self.inodes.update_backing(id, |backing| backing.id <= 0);
        if !self.passes_through || is_moved_by_us() {
            return;
        }
        let stat = self.place(id).and_then(|place| stat_place(&*place));
        if stat.is_ok_and(|stat| self.inodes.told(id) != fingerprint(&stat)) {
            // A connection that is gone is noticed by those who read from it.
            let _ = self.notify(&Notification::Attributes { inode: id.0 });
        }
    }

    /// Whether we are told of changes in the folder; it is watched from now on if it can be.
    pub(super) fn is_watched(&self, id: InodeId, spot: &Spot) -> bool {
        match self.inodes.watched(id) {
            Watched::Yes => true,
            Watched::No => false,
            Watched::Untried => {
                let watched = self.try_watching(id, spot);
                self.set_watched(id, watched);
                watched
            }
        }
    }

    pub(super) fn set_watched(&self, id: InodeId, watched: bool) {
        self.inodes.set_watched(id, if watched { Watched::Yes } else { Watched::No });
    }

    pub(super) fn try_watching(&self, id: InodeId, spot: &Spot) -> bool {
        let Some(watch) = &self.watch else { return false };
        let volume = stat_place(&spot.place).ok().and_then(|stat| self.volumes.known(&stat));
        // What other machines change is not told.
        volume.is_some_and(|volume| !volume.is_remote)
            && watch.add((id, spot.branch), &spot.place).is_ok()
    }

    /// Watches the sources that are whole file systems, if it may: else each folder is watched.
    pub(super) fn watch_whole_sources(&mut self) {
        let several = self.branches.iter().flat_map(|branches| branches.roots());
        let roots: Vec<_> = several.chain([&self.root]).cloned().collect();
        let Some(watch) = &mut self.watch else { return };
        for root in roots {
            let Ok(stat) = stat_place(&root) else { continue };
            let again = || fs::openat(&root, c".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
            let is_local = self.volumes.of(&stat, again).is_ok_and(|volume| !volume.is_remote);
            let is_top = stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
            if is_local && is_top && mounts::is_whole(stat.stx_mnt_id) {
                let _ = watch.add_whole(&root);
            }
        }
    }

    /// Whether we are told of changes to the file, by the folder that it was found in.
    pub(super) fn is_parent_watched(&self, id: InodeId) -> bool {
        let parent = self.inodes.get(id).map(|inode| inode.parent);
        parent.is_ok_and(|parent| {
            self.inodes.get(parent).is_ok() && self.inodes.watched(parent) == Watched::Yes
        })
    }

    /// Ends the watch of a folder that the kernel has forgotten.
    pub(super) fn unwatch(&self, forgotten: &Forgotten) {
        let id = forgotten.inode.id;
        let (Some(watch), Watched::Yes) = (&self.watch, forgotten.watched) else { return };
        if let Some(merged) = self.branches.as_ref().and_then(|branches| branches.get(id)) {
            let spots = merged.parts.iter().flat_map(|part| self.spot(&merged, part));
            spots.for_each(|spot| watch.remove(&spot.place));
            return;
        }
        let place = self.places.get(id).map(Ok).unwrap_or_else(|| {
            self.open_inode(&forgotten.inode, OFlags::PATH | OFlags::NOFOLLOW).map(Into::into)
        });
        if let Ok(place) = place {
            watch.remove(&place);
        }
    }

    /// Tells the kernel what others have changed.
    pub(crate) fn tell(&self, change: Change<'_>) {
        let told = match change {
            Change::Name((folder, _), name) => self.tell_name(folder, name),
            Change::File((folder, branch), name) => self.tell_file(folder, branch, name),
            Change::Folder(folder) => self.notify(&Notification::Attributes { inode: folder.0 }),
            Change::Everything => self.tell_everything(),
        };
        self.memory.count(Count::Told);
        // A connection that is gone is noticed by those who read from it.
        let _ = told;
    }

    fn tell_name(&self, folder: InodeId, name: &[u8]) -> Result<(), Errno> {
        if self.branches.is_some() {
            self.note_told(folder, &CString::new(name).map_err(|_| Errno::INVAL)?)?;
        }
        self.notify(&Notification::Entry { parent: folder.0, name })?;
        // Its names, and its change time.
        self.notify(&Notification::Data { inode: folder.0 })
    }

    /// The kernel need not be told what it was told since.
    fn tell_file(&self, folder: InodeId, branch: u16, name: &[u8]) -> Result<(), Errno> {
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        let spot = self.spot_in(&self.folder(folder)?, branch)?;
        let stat = stat_name(&spot.place, &name)?;
        let Some(id) = self.known(&stat) else { return Ok(()) };
        // The kernel keeps data too if we move it: of two changes within a tick it would miss one.
        let is_settled = self.passes_through || now() > change_time(&stat) + TICK_MAX;
        if is_settled && self.inodes.told(id) == fingerprint(&stat) {
            return Ok(());
        }
        self.notify(&Notification::Attributes { inode: id.0 })
    }

    /// Something was left out: nothing that the kernel holds is certain.
    pub(crate) fn tell_everything(&self) -> Result<(), Errno> {
        if let Some(branches) = &self.branches {
            branches.drop_folders();
        }
        self.notify(&Notification::Epoch)
    }
}

/// When the file was changed last, nanoseconds since 1970.
fn change_time(stat: &Statx) -> u64 {
    let nanoseconds = |time: &StatxTimestamp| {
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        seconds.wrapping_mul(1_000_000_000).wrapping_add(u64::from(time.tv_nsec))
    };
    nanoseconds(&stat.stx_ctime)
}

/// One number for all attributes that can be told.
fn fingerprint(stat: &Statx) -> u64 {
    let time = |time: &StatxTimestamp| time.tv_sec.cast_unsigned() << 30 ^ u64::from(time.tv_nsec);
    let owner = u64::from(stat.stx_uid) << 32 | u64::from(stat.stx_gid);
    let kind = u64::from(stat.stx_nlink) << 32 | u64::from(stat.stx_mode);
    let all = [time(&stat.stx_ctime), time(&stat.stx_mtime), stat.stx_size, owner, kind];
    all.iter().fold(0, |mixed: u64, word| {
        let mixed = (mixed ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 29)
    })
}

/// For how long the attributes of a file are likely to hold that somebody else changed at `change`:
/// half as long as they have held.
fn settled_for(change: u64, now: u64) -> Duration {
    Duration::from_nanos(now.saturating_sub(change) / 2).max(UNWATCHED_TIMEOUT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_ago_the_change_the_longer_the_attributes_hold() {
        const SECOND: u64 = 1_000_000_000;
        assert_eq!(settled_for(0, 3600 * SECOND), Duration::from_secs(1800));
        assert_eq!(settled_for(0, SECOND / 2), Duration::from_secs(1));
        assert_eq!(settled_for(5 * SECOND, SECOND), Duration::from_secs(1));
    }
}
