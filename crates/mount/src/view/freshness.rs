//! How long the kernel may keep what it is told, and what it must be told again.
//!
//! Names in a folder that is watched hold until we say otherwise. So do attributes, with two
//! exceptions. Of a file with several names we may know one only. And of one that somebody writes to, and has not
//! closed yet, nobody is told: its attributes hold a moment, and none at all while others write to it.

use std::ffi::{CStr, CString};
use std::time::Duration;

use rustix::fs::{self, Mode, OFlags, ResolveFlags, Statx, StatxAttributes, StatxTimestamp};
use rustix::io::Errno;
use thruway_fuse::Notification;
use thruway_sys::fanotify::What;
use thruway_sys::handle::FileHandle;

use super::folder::{self, Folder};
use super::lookup::{Maker, now, open_handle, stat_place};
use super::{Timeouts, View};
use crate::branches::Branches;
use crate::inodes::{Forgotten, InodeId, Watched};
use crate::memory::Count;
use crate::mounts;
use crate::plan::Changes;
use crate::watch::{self, Change, Spot, Watch};

/// How long the kernel may keep the attributes of a file that is open here. `tail -f` asks each second, and is to see
/// at each what was written before.
pub(super) const OPEN_TIMEOUT: Duration = Duration::from_millis(500);

/// How long it may keep those of a file that nobody has open here, at most.
const CLOSED_TIMEOUT: Duration = Duration::from_secs(30);

/// Whoever writes to a file from time to time without closing it is noticed after this part of a pause.
const PAUSE_PARTS: u64 = 8;

/// Who has changed a file behind the mount within this time, nanoseconds, may still be writing to it.
const STILL_WRITING: u64 = 2_000_000_000;

/// How long the kernel may keep names if it cannot be told that a policy hides others now.
const UNCERTAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// How often a name is looked for in memory: a mount, or another change, may have come between.
const CACHED_LOOKS_MAX: u32 = 3;

/// Two changes within this time may have the same stamp, nanoseconds.
const TICK_MAX: u64 = 20_000_000;

/// The first protocol that lets us say that any name may lead elsewhere, 7.x.
const EPOCH_MINOR: u32 = 44;

const TYPE: u16 = 0o170_000;
const FOLDER: u16 = 0o040_000;
const SETUID_OR_SETGID: u16 = 0o6000;

impl View {
    /// How long the kernel may keep a name in the folder, or that there is no such name.
    pub(super) fn name_timeout(&self, folder: &Folder) -> Duration {
        let longest = self.kept(folder.is_watched).entry;
        // Which names are hidden may change, and older kernels cannot be told.
        let is_certain = self.judge.is_none() || self.agreement.minor >= EPOCH_MINOR;
        if is_certain { longest } else { longest.min(UNCERTAIN_TIMEOUT) }
    }

    /// How long the kernel may keep what it is told of a folder's names.
    fn kept(&self, is_watched: bool) -> Timeouts {
        let longest = self.behaviour.timeouts;
        let holds = match self.behaviour.changes {
            _ if self.behaviour.frozen => true,
            Changes::Told => is_watched,
            Changes::Asked => false,
            Changes::Ignored => true,
        };
        let nothing = Timeouts { entry: Duration::ZERO, attributes: Duration::ZERO };
        if holds { longest } else { nothing }
    }

    /// How changes behind the mount are noticed.
    pub(crate) fn changes(&self) -> Changes {
        self.behaviour.changes
    }

    /// Has changes told, if that is wanted and can be had. Where each look-up asks, the index of names of several
    /// sources has to be told all the same.
    pub(super) fn choose_changes(&mut self) {
        if self.behaviour.frozen || self.behaviour.changes == Changes::Ignored {
            return;
        }
        let is_told = self.behaviour.changes == Changes::Told && watch::may_be_first().is_ok();
        if is_told || self.branches.is_some() {
            self.watch = Watch::new().ok();
        }
        if !is_told || self.watch.is_none() {
            self.behaviour.changes = Changes::Asked;
        }
        self.watch_whole_sources();
    }

    /// What was changed before the request is known before it is answered, where each look-up asks.
    pub(super) fn catch_up(&self) {
        if let (Changes::Asked, Some(watch)) = (self.behaviour.changes, &self.watch) {
            // If it fails, it fails for the thread that does nothing else, too.
            let _ = watch.catch_up(|change| self.tell(change));
        }
    }

    /// How long the kernel may keep what it is told of a file in a folder, and that it was told.
    pub(super) fn timeouts(
        &self,
        id: InodeId,
        is_watched: bool,
        stat: &Statx,
        maker: Maker,
    ) -> Timeouts {
        let mut timeouts = self.kept(is_watched);
        if self.behaviour.frozen {
            return timeouts;
        }
        let change = change_time(stat);
        self.inodes.set_told(id, fingerprint(stat));
        if maker == Maker::Us {
            self.inodes.set_ours(id, change);
        }
        if stat.stx_mode & TYPE != FOLDER && self.behaviour.changes != Changes::Ignored {
            let is_open = self.inodes.update_backing(id, |backing| backing.opens > 0);
            // The kernel is told once more if it stays open.
            let opened = self.deferred.trust_opened(id).filter(|_| is_open);
            let is_open = is_open && opened.is_none();
            let is_ours = change <= self.inodes.ours(id) || opened.is_some_and(|it| it.is_written);
            let hold = hold_for(stat, is_open, is_ours, now());
            timeouts.attributes = timeouts.attributes.min(hold);
        }
        timeouts
    }

    /// Attributes that the kernel holds of a closed file may be older than what others have written to it since.
    /// So they are compared when it is opened. If they are the same, the kernel need not ask for them before the
    /// file has been open for a while.
    pub(super) fn note_open(&self, id: InodeId, is_written: bool) {
        if self.behaviour.changes != Changes::Told {
            return;
        }
        let is_added = self.deferred.add_opened(id, is_written);
        if !is_added || !self.is_as_told(id) {
            self.tell_attributes(id);
        }
    }

    /// The kernel has heard the attributes of a file that is made and opened at once.
    pub(super) fn note_open_new(&self, id: InodeId, is_written: bool) {
        if self.behaviour.changes == Changes::Told && !self.deferred.add_opened(id, is_written) {
            self.tell_attributes(id);
        }
    }

    /// Has the kernel ask for the attributes of a file that is still open, or that others may have changed while a
    /// program wrote to it.
    pub(super) fn tell_if_needed(&self, id: InodeId, is_trusted: bool) {
        if self.inodes.get(id).is_err() {
            return;
        }
        let is_open = self.inodes.update_backing(id, |backing| backing.opens > 0);
        if is_open || is_trusted && !self.is_as_told(id) {
            self.tell_attributes(id);
        }
    }

    /// Who has died may have meant to tell the kernel of files that are open.
    pub(crate) fn tell_all_open(&self) {
        if self.behaviour.changes == Changes::Told {
            self.inodes.open().into_iter().for_each(|id| self.tell_attributes(id));
        }
    }

    /// Whether the file's attributes are those that the kernel was told last.
    fn is_as_told(&self, id: InodeId) -> bool {
        let stat = self.place(id).and_then(|place| stat_place(&*place));
        stat.is_ok_and(|stat| self.inodes.told(id) == fingerprint(&stat))
    }

    fn tell_attributes(&self, id: InodeId) {
        // A connection that is gone is noticed by those who read from it.
        let _ = self.notify(&Notification::Attributes { inode: id.0 });
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
        if !self.is_as_told(id) {
            self.tell_attributes(id);
        }
    }

    /// Whether we are told of changes in the folder; it is watched from now on if it can be.
    pub(super) fn is_watched(&self, id: InodeId, spot: &folder::Spot) -> bool {
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

    pub(super) fn try_watching(&self, id: InodeId, spot: &folder::Spot) -> bool {
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

    /// Whether we are told of changes to the file, by the folder that it was found in, or by itself: the root.
    pub(super) fn is_parent_watched(&self, id: InodeId) -> bool {
        if id == InodeId::ROOT {
            return self.folder(id).is_ok_and(|root| root.is_watched);
        }
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
            spots.for_each(|spot| watch.remove(id, &spot.place));
            return;
        }
        let place = self.places.get(id).map(Ok).unwrap_or_else(|| {
            self.open_inode(&forgotten.inode, OFlags::PATH | OFlags::NOFOLLOW).map(Into::into)
        });
        if let Ok(place) = place {
            watch.remove(id, &place);
        }
    }

    /// Tells the kernel what others have changed.
    pub(crate) fn tell(&self, change: Change<'_>) {
        let told = match change {
            Change::File(..) | Change::Folder(..) | Change::Unwatched(_)
                if self.behaviour.changes == Changes::Asked =>
            {
                Ok(())
            }
            Change::Name(spot, name, what) => self.tell_name(spot, name, what),
            Change::FolderName(spot, name) => self.tell_folder_name(spot, name),
            Change::File((folder, branch), name) => self.tell_file(folder, branch, name),
            Change::Folder(id, folder) => self.tell_folder(id, &folder),
            Change::Unwatched(folder) => self.tell_unwatched(&folder),
            Change::Everything => self.tell_everything(),
            Change::Late => self.tell_late(),
        };
        self.memory.count(Count::Told);
        // A connection that is gone is noticed by those who read from it.
        let _ = told;
    }

    fn tell_folder_name(&self, spot: Spot, name: &[u8]) -> Result<(), Errno> {
        if self.may_be_part(spot.0, name) {
            // A folder below has one part more or less. That is rare enough to begin again.
            self.tell_everything()?;
        }
        self.tell_name(spot, name, What::Went)
    }

    /// Nothing is asked of a folder in which a name has gone: whoever removed it may still hold the folder's lock,
    /// and wait for us to give way.
    fn tell_name(&self, (folder, branch): Spot, name: &[u8], what: What) -> Result<(), Errno> {
        self.doubt(folder, name);
        if self.behaviour.changes == Changes::Asked {
            // What it was listed with is kept, and held against the times of one source only.
            return self.notify(&Notification::Data { inode: folder.0 });
        }
        self.notify(&Notification::Entry { parent: folder.0, name })?;
        // Its names, and its change time.
        self.notify(&Notification::Data { inode: folder.0 })?;
        if what == What::Went {
            return Ok(());
        }
        // If that was a link, the file has one name more.
        self.tell_file(folder, branch, name)
    }

    /// The kernel is told of a file only what it was not told since. A look at the disk might wait for a lock whose
    /// holder waits for us to give way. So a name is looked at later that is not in memory. It is mostly gone: a
    /// file that was written through the mount is told, too, and may have another name by then.
    fn tell_file(&self, folder: InodeId, branch: u16, name: &[u8]) -> Result<(), Errno> {
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        for _ in 0..CACHED_LOOKS_MAX {
            match self.tell_found((folder, branch), &name, ResolveFlags::CACHED) {
                Err(Errno::AGAIN) => {}
                told => return told,
            }
        }
        if self.deferred.add_name((folder, branch), name) { Ok(()) } else { self.tell_late() }
    }

    /// The same with a look at the disk.
    pub(super) fn tell_slowly(&self, spot: Spot, name: &CStr) {
        // A connection that is gone is noticed by those who read from it.
        let _ = self.tell_found(spot, name, ResolveFlags::empty());
    }

    fn tell_found(&self, at: Spot, name: &CStr, resolve: ResolveFlags) -> Result<(), Errno> {
        let spot = self.spot_in(&self.folder(at.0)?, at.1)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = fs::openat2(&spot.place, name, flags, Mode::empty(), resolve);
        let stat = opened.and_then(stat_place)?;
        let Some(id) = self.known(&stat) else { return Ok(()) };
        // The kernel keeps data too if we move it: of two changes within a tick it would miss one.
        let is_settled = self.passes_through || now() > change_time(&stat) + TICK_MAX;
        if is_settled && self.inodes.told(id) == fingerprint(&stat) {
            return Ok(());
        }
        let is_moved_by_us = self.inodes.update_backing(id, |backing| backing.id < 0);
        self.notify(&match is_moved_by_us || !self.passes_through {
            // By its attributes alone the kernel could not tell two changes of one tick apart.
            true => Notification::Data { inode: id.0 },
            false => Notification::Attributes { inode: id.0 },
        })
    }

    /// Of several sources, the kernel may know a part of a merged folder as a folder by itself since, when the parts
    /// before it are gone.
    fn tell_folder(&self, id: InodeId, folder: &FileHandle) -> Result<(), Errno> {
        self.notify(&Notification::Attributes { inode: id.0 })?;
        if self.branches.is_some() { self.tell_unwatched(folder) } else { Ok(()) }
    }

    /// A folder of which the kernel knows the attributes, and no names.
    fn tell_unwatched(&self, folder: &FileHandle) -> Result<(), Errno> {
        for volume in self.volumes.all() {
            let opened = open_handle(&volume, folder, OFlags::PATH | OFlags::DIRECTORY);
            let stat = opened.and_then(stat_place);
            if let Some(id) = stat.ok().and_then(|stat| self.known(&stat)) {
                self.notify(&Notification::Attributes { inode: id.0 })?;
            }
        }
        Ok(())
    }

    /// Changes cannot be told in time. So all names are asked for again, unless something is mounted upon the mount:
    /// the kernel would take that away with the name that it lies on.
    fn tell_late(&self) -> Result<(), Errno> {
        if mounts::are_upon_ours() { Ok(()) } else { self.tell_everything() }
    }

    /// Something was left out: nothing that the kernel holds is certain.
    pub(crate) fn tell_everything(&self) -> Result<(), Errno> {
        // First what waits for no lock.
        let told = self.notify(&Notification::Epoch);
        let dropped = self.branches.as_ref().map(Branches::drop_folders).unwrap_or_default();
        // Listings are held against the times of one source only, which say nothing of another part.
        let names = dropped.iter().map(|id| self.notify(&Notification::Data { inode: id.0 }));
        told.and(names.collect())
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

/// For how long the attributes of a file hold if nothing is told. `is_open` says that it is open here, `is_ours` that
/// its last change came through the mount.
fn hold_for(stat: &Statx, is_open: bool, is_ours: bool, now: u64) -> Duration {
    // A write that the kernel moves by itself clears setuid and setgid behind the back of the attributes that it
    // holds.
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
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn changed_at(seconds: i64) -> Statx {
        let mut stat = stat_place(std::fs::File::open("/proc/self/exe").unwrap()).unwrap();
        stat.stx_mode = 0o100_644;
        stat.stx_nlink = 1;
        stat.stx_ctime.tv_sec = seconds;
        stat.stx_ctime.tv_nsec = 0;
        stat
    }

    #[test]
    fn attributes_of_a_file_that_others_may_be_writing_to_do_not_hold() {
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
    fn attributes_that_may_change_by_another_name_do_not_hold() {
        let mut stat = changed_at(0);
        stat.stx_nlink = 2;
        assert_eq!(hold_for(&stat, false, true, SECOND), Duration::ZERO);
        let mut stat = changed_at(0);
        stat.stx_mode |= 0o4000;
        assert_eq!(hold_for(&stat, false, true, SECOND), Duration::ZERO);
    }
}
