//! Invalidates the kernel's caches.

use std::ffi::{CStr, CString};
use std::sync::Arc;

use rustix::fs::{self, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use thruway_fuse::Notification;
use thruway_resolve::stamp::{Stamp, now_ns};
use thruway_sys::fanotify::ChangeKind;
use thruway_sys::handle::FileHandle;

use super::connection::Connection;
use super::deferred::{DeferredInvalidations, DueInvalidations};
use super::files::Files;
use super::folders::Folders;
use super::merged_sources::MergedSources;
use super::stat::{TICK_MAX, now, open_handle, stat_fd};
use super::timeouts::{OPEN_TIMEOUT, fingerprint};
use crate::branches::DroppedNames;
use crate::inodes::InodeId;
use crate::memory::{Count, Memory};
use crate::mounts;
use crate::plan::Changes;
use crate::watch::{Change, WatchKey};

/// The number of times that a lookup in memory is tried, since a mount or another change may interfere.
const CACHED_LOOKS_MAX: u32 = 3;

/// Invalidates the kernel's caches after changes behind the mount.
#[derive(Debug)]
pub(super) struct Invalidation {
    pub(super) connection: Arc<Connection>,
    pub(super) memory: Arc<Memory>,
    pub(super) files: Arc<Files>,
    pub(super) folders: Arc<Folders>,
    pub(super) deferred: Arc<DeferredInvalidations>,
    /// How changes behind the mount are noticed.
    pub(super) changes: Changes,
    /// Whether the kernel moves the data of files.
    pub(super) passes_through: bool,
}

impl Invalidation {
    fn merged_sources(&self) -> Option<&MergedSources> {
        self.folders.merged_sources.as_ref()
    }

    /// Runs deferred invalidations on the calling thread, and never returns.
    pub(super) fn run_deferred(&self) {
        loop {
            match self.deferred.next(OPEN_TIMEOUT) {
                DueInvalidations::Files(opened) => {
                    opened.into_iter().for_each(|(id, opened)| {
                        self.invalidate_if_needed(id, opened.is_trusted);
                    });
                }
                DueInvalidations::Names(names) => {
                    names
                        .into_iter()
                        .for_each(|(key, name)| self.invalidate_name_on_disk(key, &name));
                }
            }
        }
    }

    /// With [`Changes::Asked`], applies all changes that precede this request.
    pub(super) fn catch_up(&self) {
        if let (Changes::Asked, Some(watch)) = (self.changes, self.folders.watches.watch()) {
            // The thread that reports changes meets the same error, and handles it.
            let _ = watch.catch_up(|change| self.apply(change));
        }
    }

    /// Compares the attributes that the kernel caches with the file's at an open, since other programs may have written
    /// to the file while it was closed. If the attributes are equal, the kernel keeps them until the file has been open
    /// for a while.
    pub(super) fn note_open(&self, id: InodeId, is_written: bool) {
        if self.changes != Changes::Told {
            return;
        }
        let is_added = self.deferred.add_opened(id, is_written);
        if !is_added || !self.is_cached(id) {
            self.connection.invalidate_attributes(id);
        }
    }

    /// Notes the open of a new file, whose attributes the kernel has just received.
    pub(super) fn note_open_new(&self, id: InodeId, is_written: bool) {
        if self.changes == Changes::Told && !self.deferred.add_opened(id, is_written) {
            self.connection.invalidate_attributes(id);
        }
    }

    /// Invalidates the attributes of a file that is still open, or that other programs may have changed while a program
    /// wrote to it.
    pub(super) fn invalidate_if_needed(&self, id: InodeId, is_trusted: bool) {
        let is_open = self.files.inodes.is_open(id);
        if is_open || is_trusted && !self.is_cached(id) {
            self.connection.invalidate_attributes(id);
        }
    }

    /// Invalidates the attributes of all open files, since the previous worker may have deferred that.
    pub(super) fn invalidate_all_open(&self) {
        if self.changes == Changes::Told {
            self.files
                .inodes
                .open()
                .into_iter()
                .for_each(|id| self.connection.invalidate_attributes(id));
        }
    }

    /// Whether the file's attributes are those that the kernel received last.
    fn is_cached(&self, id: InodeId) -> bool {
        let stat = self.files.path_fd(id).and_then(|fd| stat_fd(&*fd));
        stat.is_ok_and(|stat| self.files.inodes.cached_fingerprint(id) == fingerprint(&stat))
    }

    /// Notes that the file's writer has closed it, so that all changes so far are known to come through the mount.
    pub(super) fn note_written(&self, id: InodeId) {
        // The clock of file times may be a tick ahead of this clock.
        self.files.inodes.set_own_changes_until(id, now() + TICK_MAX);
    }

    /// Invalidates attributes after a close, if they have changed. The kernel notices its own writes to a backing file,
    /// but not writes through a mapping. In watched folders, an event arrives as well, but later, and a program such as
    /// `make` may ask before that.
    pub(super) fn invalidate_if_changed(&self, id: InodeId) {
        let is_daemon_io = || self.files.inodes.update_backing(id, |backing| backing.id <= 0);
        if !self.passes_through || is_daemon_io() {
            return;
        }
        if !self.is_cached(id) {
            self.connection.invalidate_attributes(id);
        }
    }

    /// Invalidates the caches that a change by another program concerns.
    pub(super) fn apply(&self, change: Change<'_>) {
        let sent = match change {
            Change::File(..) | Change::Folder(..) | Change::Unwatched(_)
                if self.changes == Changes::Asked =>
            {
                Ok(())
            }
            Change::Name(key, name, kind) => self.invalidate_name(key, name, kind),
            Change::FolderName(key, name) => self.invalidate_folder_name(key, name),
            Change::File((folder, branch), name) => self.invalidate_file(folder, branch, name),
            Change::Folder(id, folder) => self.invalidate_folder(id, &folder),
            Change::Unwatched(folder) => self.invalidate_unwatched(&folder),
            Change::Everything => self.invalidate_names(DroppedNames::Outdated),
            Change::Late => self.invalidate_late(),
        };
        self.memory.count(Count::ReportedChanges);
        // The readers notice if the connection is gone.
        let _ = sent;
    }

    fn invalidate_folder_name(&self, key: WatchKey, name: &[u8]) -> Result<(), Errno> {
        if self.folders.branches().is_some_and(|all| all.may_be_part(key.0, name)) {
            // Folders below have one part more or less.
            self.invalidate_names(DroppedNames::Current)?;
        }
        self.invalidate_name(key, name, ChangeKind::Disappeared)
    }

    /// Invalidates a name. For a removed name, this thread must not read the source: the program that removed the name
    /// may still hold the folder's lock while this thread preempts it.
    fn invalidate_name(
        &self,
        (folder, branch): WatchKey,
        name: &[u8],
        kind: ChangeKind,
    ) -> Result<(), Errno> {
        if let Some(merged_sources) = self.merged_sources() {
            merged_sources.mark_stale(folder, name);
        }
        if self.changes == Changes::Asked {
            // The kernel validates a cached listing by the times of a single source.
            return self.connection.notify(&Notification::Data { inode: folder.0 });
        }
        self.connection.notify(&Notification::Entry { parent: folder.0, name })?;
        // Drops the cached listing and the folder's time of change.
        self.connection.notify(&Notification::Data { inode: folder.0 })?;
        if kind == ChangeKind::Disappeared {
            return Ok(());
        }
        // If the name is a new hard link, the file's attributes have changed.
        self.invalidate_file(folder, branch, name)
    }

    /// Invalidates a file if its attributes have changed. A lookup on disk might wait for a lock whose holder this
    /// thread preempts, so a name that is not in the kernel's memory is looked up later. Mostly the name is already
    /// gone: files that were written through the mount are reported as well, and renamed meanwhile.
    fn invalidate_file(&self, folder: InodeId, branch: u16, name: &[u8]) -> Result<(), Errno> {
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        for _ in 0..CACHED_LOOKS_MAX {
            match self.invalidate_found((folder, branch), &name, ResolveFlags::CACHED) {
                Err(Errno::AGAIN) => {}
                done => return done,
            }
        }
        if self.deferred.add_name((folder, branch), name) { Ok(()) } else { self.invalidate_late() }
    }

    /// Invalidates a file as [`invalidate_file`](Self::invalidate_file) does, with a lookup on disk.
    pub(super) fn invalidate_name_on_disk(&self, key: WatchKey, name: &CStr) {
        // The readers notice if the connection is gone.
        let _ = self.invalidate_found(key, name, ResolveFlags::empty());
    }

    fn invalidate_found(
        &self,
        at: WatchKey,
        name: &CStr,
        resolve: ResolveFlags,
    ) -> Result<(), Errno> {
        let dir = self.folders.dir_in(&self.folders.folder(at.0)?, at.1)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = fs::openat2(&dir.fd, name, flags, Mode::empty(), resolve);
        let stat = opened.and_then(stat_fd)?;
        let Some(id) = self.files.known(&stat) else { return Ok(()) };
        // With daemon I/O the kernel caches data as well, and would miss the second of two changes within a tick.
        let is_settled = self.passes_through || !Stamp::of_statx(&stat).is_racy(now_ns());
        if is_settled && self.files.inodes.cached_fingerprint(id) == fingerprint(&stat) {
            return Ok(());
        }
        let is_daemon_io = self.files.inodes.update_backing(id, |backing| backing.id < 0);
        self.connection.notify(&match is_daemon_io || !self.passes_through {
            // By attributes alone, the kernel cannot distinguish two changes within a tick.
            true => Notification::Data { inode: id.0 },
            false => Notification::Attributes { inode: id.0 },
        })
    }

    /// Invalidates a folder. With several sources, the kernel may also know a part of the folder as a separate folder.
    fn invalidate_folder(&self, id: InodeId, folder: &FileHandle) -> Result<(), Errno> {
        self.connection.notify(&Notification::Attributes { inode: id.0 })?;
        if self.folders.branches().is_some() { self.invalidate_unwatched(folder) } else { Ok(()) }
    }

    /// Invalidates a folder without a watch. The kernel caches its attributes, but no names.
    fn invalidate_unwatched(&self, folder: &FileHandle) -> Result<(), Errno> {
        for volume in self.files.volumes.all() {
            let opened = open_handle(&volume, folder, OFlags::PATH | OFlags::DIRECTORY);
            let stat = opened.and_then(stat_fd);
            if let Some(id) = stat.ok().and_then(|stat| self.files.known(&stat)) {
                self.connection.notify(&Notification::Attributes { inode: id.0 })?;
            }
        }
        Ok(())
    }

    /// Invalidates all names, since changes are reported too late. What is known of folders holds, as the changes will
    /// be reported: only their parts are looked up again. But if there is a mount on top of a thruway mount,
    /// nothing is invalidated: the kernel would remove that mount together with the name of its mount point.
    fn invalidate_late(&self) -> Result<(), Errno> {
        self.memory.count(Count::LateReports);
        if mounts::any_on_top_of_ours() {
            Ok(())
        } else {
            self.invalidate_names(DroppedNames::Current)
        }
    }

    /// Invalidates all names of the kernel, because events were lost or come late, or rules have changed. The parts of
    /// merged folders are looked up again, and their names read again if those are outdated.
    pub(super) fn invalidate_names(&self, of_folders: DroppedNames) -> Result<(), Errno> {
        // The notification that takes no lock comes first.
        let sent = self.connection.notify(&Notification::Epoch);
        let branches = self.folders.branches();
        let dropped = branches.map(|all| all.drop_folders(of_folders)).unwrap_or_default();
        // The kernel validates cached listings by the times of a single source, so listings of merged folders are
        // dropped individually.
        let names =
            dropped.iter().map(|id| self.connection.notify(&Notification::Data { inode: id.0 }));
        sent.and(names.collect())
    }
}
