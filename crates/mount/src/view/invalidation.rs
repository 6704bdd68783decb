//! What the kernel must be told again.

use std::ffi::{CStr, CString};
use std::sync::Arc;

use rustix::fs::{self, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use thruway_fuse::Notification;
use thruway_sys::fanotify::What;
use thruway_sys::handle::FileHandle;

use super::connection::Connection;
use super::deferred::{Deferred, Due};
use super::files::Files;
use super::folders::Folders;
use super::merging::Merging;
use super::stat::{TICK_MAX, now, open_handle, stat_place};
use super::timeouts::{OPEN_TIMEOUT, change_time, fingerprint};
use crate::branches::Branches;
use crate::inodes::InodeId;
use crate::memory::{Count, Memory};
use crate::mounts;
use crate::plan::Changes;
use crate::watch::{Change, WatchKey};

/// How often a name is looked for in memory: a mount, or another change, may have come between.
const CACHED_LOOKS_MAX: u32 = 3;

/// Tells the kernel what changes behind its back.
#[derive(Debug)]
pub(super) struct Invalidation {
    pub(super) connection: Arc<Connection>,
    pub(super) memory: Arc<Memory>,
    pub(super) files: Arc<Files>,
    pub(super) folders: Arc<Folders>,
    pub(super) deferred: Arc<Deferred>,
    /// How changes behind the mount are noticed.
    pub(super) changes: Changes,
    /// The kernel moves the data of files.
    pub(super) passes_through: bool,
}

impl Invalidation {
    fn merging(&self) -> Option<&Merging> {
        self.folders.merging.as_ref()
    }

    /// Tells the kernel what is due, for ever: for a thread of its own.
    pub(super) fn run_deferred(&self) {
        loop {
            match self.deferred.next(OPEN_TIMEOUT) {
                Due::Opened(opened) => {
                    opened.into_iter().for_each(|(id, opened)| {
                        self.invalidate_if_needed(id, opened.is_trusted);
                    });
                }
                Due::Names(names) => {
                    names
                        .into_iter()
                        .for_each(|(dir, name)| self.invalidate_name_on_disk(dir, &name));
                }
            }
        }
    }

    /// What was changed before the request is known before it is answered, where each look-up asks.
    pub(super) fn catch_up(&self) {
        if let (Changes::Asked, Some(watch)) = (self.changes, self.folders.watches.watch()) {
            // If it fails, it fails for the thread that does nothing else, too.
            let _ = watch.catch_up(|change| self.apply(change));
        }
    }

    /// Attributes that the kernel holds of a closed file may be older than what others have written to it since.
    /// So they are compared when it is opened. If they are the same, the kernel need not ask for them before the
    /// file has been open for a while.
    pub(super) fn note_open(&self, id: InodeId, is_written: bool) {
        if self.changes != Changes::Told {
            return;
        }
        let is_added = self.deferred.add_opened(id, is_written);
        if !is_added || !self.is_cached(id) {
            self.connection.invalidate_attributes(id);
        }
    }

    /// The kernel has heard the attributes of a file that is made and opened at once.
    pub(super) fn note_open_new(&self, id: InodeId, is_written: bool) {
        if self.changes == Changes::Told && !self.deferred.add_opened(id, is_written) {
            self.connection.invalidate_attributes(id);
        }
    }

    /// Has the kernel ask for the attributes of a file that is still open, or that others may have changed while a
    /// program wrote to it.
    pub(super) fn invalidate_if_needed(&self, id: InodeId, is_trusted: bool) {
        let is_open = self.files.inodes.is_open(id);
        if is_open || is_trusted && !self.is_cached(id) {
            self.connection.invalidate_attributes(id);
        }
    }

    /// Who has died may have meant to tell the kernel of files that are open.
    pub(super) fn invalidate_all_open(&self) {
        if self.changes == Changes::Told {
            self.files
                .inodes
                .open()
                .into_iter()
                .for_each(|id| self.connection.invalidate_attributes(id));
        }
    }

    /// Whether the file's attributes are those that the kernel was told last.
    fn is_cached(&self, id: InodeId) -> bool {
        let stat = self.files.place(id).and_then(|place| stat_place(&*place));
        stat.is_ok_and(|stat| self.files.inodes.cached_fingerprint(id) == fingerprint(&stat))
    }

    /// What the file's last writer through the mount has done is known: it has closed the file.
    pub(super) fn note_written(&self, id: InodeId) {
        // The clock that stamps changes may be a tick ahead of the one that is read here.
        self.files.inodes.set_own_changes_until(id, now() + TICK_MAX);
    }

    /// Tells the kernel that it holds older attributes. It knows of writes that it moves by itself, and not of
    /// those through a map, whose file is open for reading and writing. Where folders are watched it would be
    /// told by that, too, but later: `make` may ask before.
    pub(super) fn invalidate_if_changed(&self, id: InodeId) {
        let is_moved_by_us = || self.files.inodes.update_backing(id, |backing| backing.id <= 0);
        if !self.passes_through || is_moved_by_us() {
            return;
        }
        if !self.is_cached(id) {
            self.connection.invalidate_attributes(id);
        }
    }

    /// Tells the kernel what others have changed.
    pub(super) fn apply(&self, change: Change<'_>) {
        let told = match change {
            Change::File(..) | Change::Folder(..) | Change::Unwatched(_)
                if self.changes == Changes::Asked =>
            {
                Ok(())
            }
            Change::Name(dir, name, what) => self.invalidate_name(dir, name, what),
            Change::FolderName(dir, name) => self.invalidate_folder_name(dir, name),
            Change::File((folder, branch), name) => self.invalidate_file(folder, branch, name),
            Change::Folder(id, folder) => self.invalidate_folder(id, &folder),
            Change::Unwatched(folder) => self.invalidate_unwatched(&folder),
            Change::Everything => self.invalidate_everything(),
            Change::Late => self.invalidate_late(),
        };
        self.memory.count(Count::Told);
        // A connection that is gone is noticed by those who read from it.
        let _ = told;
    }

    fn invalidate_folder_name(&self, dir: WatchKey, name: &[u8]) -> Result<(), Errno> {
        if self.merging().is_some_and(|all| all.may_be_part(dir.0, name)) {
            // A folder below has one part more or less. That is rare enough to begin again.
            self.invalidate_everything()?;
        }
        self.invalidate_name(dir, name, What::Went)
    }

    /// Nothing is asked of a folder in which a name has gone: whoever removed it may still hold the folder's lock,
    /// and wait for us to give way.
    fn invalidate_name(
        &self,
        (folder, branch): WatchKey,
        name: &[u8],
        what: What,
    ) -> Result<(), Errno> {
        if let Some(merging) = self.merging() {
            merging.mark_stale(folder, name);
        }
        if self.changes == Changes::Asked {
            // What it was listed with is kept, and held against the times of one source only.
            return self.connection.notify(&Notification::Data { inode: folder.0 });
        }
        self.connection.notify(&Notification::Entry { parent: folder.0, name })?;
        // Its names, and its change time.
        self.connection.notify(&Notification::Data { inode: folder.0 })?;
        if what == What::Went {
            return Ok(());
        }
        // If that was a link, the file has one name more.
        self.invalidate_file(folder, branch, name)
    }

    /// The kernel is told of a file only what it was not told since. A look at the disk might wait for a lock whose
    /// holder waits for us to give way. So a name is looked at later that is not in memory. It is mostly gone: a
    /// file that was written through the mount is told, too, and may have another name by then.
    fn invalidate_file(&self, folder: InodeId, branch: u16, name: &[u8]) -> Result<(), Errno> {
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        for _ in 0..CACHED_LOOKS_MAX {
            match self.invalidate_found((folder, branch), &name, ResolveFlags::CACHED) {
                Err(Errno::AGAIN) => {}
                told => return told,
            }
        }
        if self.deferred.add_name((folder, branch), name) { Ok(()) } else { self.invalidate_late() }
    }

    /// The same with a look at the disk.
    pub(super) fn invalidate_name_on_disk(&self, dir: WatchKey, name: &CStr) {
        // A connection that is gone is noticed by those who read from it.
        let _ = self.invalidate_found(dir, name, ResolveFlags::empty());
    }

    fn invalidate_found(
        &self,
        at: WatchKey,
        name: &CStr,
        resolve: ResolveFlags,
    ) -> Result<(), Errno> {
        let dir = self.folders.dir_in(&self.folders.folder(at.0)?, at.1)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = fs::openat2(&dir.place, name, flags, Mode::empty(), resolve);
        let stat = opened.and_then(stat_place)?;
        let Some(id) = self.files.known(&stat) else { return Ok(()) };
        // The kernel keeps data too if we move it: of two changes within a tick it would miss one.
        let is_settled = self.passes_through || now() > change_time(&stat) + TICK_MAX;
        if is_settled && self.files.inodes.cached_fingerprint(id) == fingerprint(&stat) {
            return Ok(());
        }
        let is_moved_by_us = self.files.inodes.update_backing(id, |backing| backing.id < 0);
        self.connection.notify(&match is_moved_by_us || !self.passes_through {
            // By its attributes alone the kernel could not tell two changes of one tick apart.
            true => Notification::Data { inode: id.0 },
            false => Notification::Attributes { inode: id.0 },
        })
    }

    /// Of several sources, the kernel may know a part of a merged folder as a folder by itself since, when the parts
    /// before it are gone.
    fn invalidate_folder(&self, id: InodeId, folder: &FileHandle) -> Result<(), Errno> {
        self.connection.notify(&Notification::Attributes { inode: id.0 })?;
        if self.folders.branches().is_some() { self.invalidate_unwatched(folder) } else { Ok(()) }
    }

    /// A folder of which the kernel knows the attributes, and no names.
    fn invalidate_unwatched(&self, folder: &FileHandle) -> Result<(), Errno> {
        for volume in self.files.volumes.all() {
            let opened = open_handle(&volume, folder, OFlags::PATH | OFlags::DIRECTORY);
            let stat = opened.and_then(stat_place);
            if let Some(id) = stat.ok().and_then(|stat| self.files.known(&stat)) {
                self.connection.notify(&Notification::Attributes { inode: id.0 })?;
            }
        }
        Ok(())
    }

    /// Changes cannot be told in time. So all names are asked for again, unless something is mounted upon the mount:
    /// the kernel would take that away with the name that it lies on.
    fn invalidate_late(&self) -> Result<(), Errno> {
        if mounts::are_upon_ours() { Ok(()) } else { self.invalidate_everything() }
    }

    /// Something was left out: nothing that the kernel holds is certain.
    pub(super) fn invalidate_everything(&self) -> Result<(), Errno> {
        // First what waits for no lock.
        let told = self.connection.notify(&Notification::Epoch);
        let dropped = self.folders.branches().map(Branches::drop_folders).unwrap_or_default();
        // Listings are held against the times of one source only, which say nothing of another part.
        let names =
            dropped.iter().map(|id| self.connection.notify(&Notification::Data { inode: id.0 }));
        told.and(names.collect())
    }
}
