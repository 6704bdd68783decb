//! Moves files from one source to another while they may be in use.
//!
//! The file is copied to a nameless file of the other source, which then gets the names, and the names of the first
//! file are removed. So at each moment every name leads to the whole file, and a kill leaves at most the same file in
//! both sources. A lease keeps writers out: if a program opens the file for writing meanwhile, the move is given up,
//! and the program goes on with the file as it was.

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, RwLockWriteGuard};
use std::time::Duration;

use rustix::fs::{self, AtFlags, Mode, OFlags, ResolveFlags, Statx, StatxAttributes};
use rustix::io::Errno;
use thruway_fuse::Notification;
use thruway_sys::handle::FileHandle;
use thruway_sys::lease::ReadLease;

use super::copying::{
    NewFile, copy_attributes, copy_data, copy_flags, ensure_folders, link, new_file, open_same,
};
use super::stat::{FILE_TYPE, REGULAR, handle_of, identity, stat_fd, stat_name};
use super::state::View;
use super::target::Target;
use crate::inodes::{BackingState, Identity, InodeId};
use crate::source_spec::SourceAccess;

/// How often, and at which intervals, a move waits for the end of a change that may be one of another file.
const CHANGE_ENDS_MAX: u32 = 20;
const CHANGE_ENDS_INTERVAL: Duration = Duration::from_millis(1);

/// A file that is moved, and where.
struct Relocation<'a> {
    view: &'a View,
    id: InodeId,
    /// All names of the file, relative to the source.
    paths: Vec<Vec<u8>>,
    from: (u16, Arc<OwnedFd>),
    to: (u16, Arc<OwnedFd>),
    is_cancelled: &'a AtomicBool,
    /// Whether writes through the daemon are kept away.
    is_held: bool,
}

/// Moves the file to another source. `given` are all names of the file, relative to the root; without them, it is the
/// one that the mount knows. `is_held` says that writes through the daemon are kept away.
///
/// # Errors
/// - `BUSY`: the file is open for writing, or is being moved already.
/// - `MLINK`: the file has further names.
/// - `EXIST`: the target has another file of the name, or a source before the target has one, to which the name would
///   lead after the move.
/// - `ROFS`, `NODEV`: one of the sources must not be changed, or is absent.
pub(super) fn relocate(
    view: &View,
    id: InodeId,
    to: u16,
    given: &[Vec<u8>],
    is_held: bool,
) -> Result<(), Errno> {
    let inode = view.files.inodes.get(id)?;
    let roots = &view.files.roots;
    roots.check_writable(inode.branch)?;
    if roots.access(to) != SourceAccess::ReadWrite {
        return Err(Errno::ROFS);
    }
    if inode.branch == to {
        return Ok(());
    }
    let moving = view.moves.begin(id)?;
    let paths = match given {
        // The kernel may have forgotten a folder on the path, and then the source knows the path.
        [] => vec![view.files.path_of(Target::Inode(id))?],
        given => given.to_vec(),
    };
    let mut relocation = Relocation {
        view,
        id,
        paths,
        from: (inode.branch, roots.get(inode.branch)?),
        to: (to, roots.get(to)?),
        is_cancelled: moving.is_cancelled(),
        is_held,
    };
    relocation.drop_gone()?;
    relocation.check_stays_shown()?;
    relocation.run()
}

impl Relocation<'_> {
    /// Drops names that an interrupted move has removed from the source already.
    fn drop_gone(&mut self) -> Result<(), Errno> {
        let file = stat_fd(&*self.view.files.path_fd(self.id)?)?;
        let mut kept = std::mem::take(&mut self.paths);
        kept.retain(|path| !matches!(self.check_name(path, &file), Err(Errno::NOENT)));
        self.paths = kept;
        if self.paths.is_empty() { Err(Errno::STALE) } else { Ok(()) }
    }

    /// Checks that the names will lead to the moved file: no source that comes before the target has one of them.
    fn check_stays_shown(&self) -> Result<(), Errno> {
        let roots = &self.view.files.roots;
        let table = roots.table();
        let before = table.order.iter().take_while(|&&branch| branch != self.to.0);
        for &branch in before.filter(|&&branch| branch != self.from.0) {
            // A source that is away hides nothing.
            let Ok(root) = roots.get(branch) else { continue };
            if self.paths.iter().any(|path| find_name(&root, path).is_ok()) {
                return Err(Errno::EXIST);
            }
        }
        Ok(())
    }

    fn run(&self) -> Result<(), Errno> {
        let view = self.view;
        // A descriptor for writing that is merely kept for later would be taken for a writer.
        view.files.forget_writer(self.id);
        view.backing.drop_idle(self.id);
        let file = view.files.open_for_reading(self.id)?;
        let before = stat_fd(&file)?;
        self.check(&before)?;
        let lease = match ReadLease::take(file.as_fd()) {
            Ok(lease) => Some(lease),
            Err(error) if error.raw_os_error() == Some(Errno::AGAIN.raw_os_error()) => {
                return Err(Errno::BUSY);
            }
            // The file system has no leases; changes are noticed by the times.
            Err(_) => None,
        };
        let is_disturbed = || {
            self.is_cancelled.load(Relaxed) || lease.as_ref().is_some_and(|it| !it.is_unbroken())
        };
        let folders = self.folders_in_target();
        // Folders that were made stay, even if the file does not move. They are watched before the file is there.
        self.drop_folders();
        self.each_folder(|id, _, _| view.connection.invalidate_attributes(id));
        let folders = folders?;
        let made = self.copy(&file, &before, &folders, &is_disturbed)?;
        let alone = view.moves.hold_names();
        // A change that is made from here on would be one of the old file. A change that is being made may wait for the
        // end of the lease.
        let _kept = if self.is_held { None } else { Some(self.keep_changes_away(&is_disturbed)?) };
        if self.is_written_by_kernel() {
            return Err(Errno::BUSY);
        }
        let now = stat_fd(&file)?;
        let is_changed = (now.stx_size, now.stx_nlink) != (before.stx_size, before.stx_nlink)
            || [(now.stx_mtime, before.stx_mtime), (now.stx_ctime, before.stx_ctime)]
                .iter()
                .any(|(a, b)| (a.tv_sec, a.tv_nsec) != (b.tv_sec, b.tv_nsec));
        if is_disturbed() || is_changed || self.is_unprotected(&lease) {
            return Err(Errno::BUSY);
        }
        let old_folders = self.check_names(&before)?;
        let made_names = self.link_all(&made, &folders)?;
        self.drop_folders();
        let is_switched =
            self.switch(&old_folders, (&folders, &made_names), &file, &is_disturbed)?;
        // The kernel takes a folder's lock, whose holder may wait for the names.
        drop(alone);
        self.invalidate(is_switched);
        Ok(())
    }

    /// Keeps changes of the file through the daemon away. Changes of other files may share the lock, so their end is
    /// waited for.
    fn keep_changes_away(
        &self,
        is_disturbed: &impl Fn() -> bool,
    ) -> Result<RwLockWriteGuard<'_, ()>, Errno> {
        for _ in 0..CHANGE_ENDS_MAX {
            match self.view.moves.try_hold_file(self.id) {
                Some(held) => return Ok(held),
                None if is_disturbed() => break,
                None => std::thread::sleep(CHANGE_ENDS_INTERVAL),
            }
        }
        Err(Errno::BUSY)
    }

    /// Whether the file is open for writing and the kernel moves the data.
    fn is_written_by_kernel(&self) -> bool {
        let is_kernels = |backing: &mut BackingState| backing.opens > 0 && backing.id > 0;
        self.view.moves.has_writer(self.id)
            && self.view.files.inodes.update_backing(self.id, is_kernels)
    }

    /// Whether a program could write to the file unnoticed.
    fn is_unprotected(&self, lease: &Option<ReadLease<'_>>) -> bool {
        lease.is_none() && !self.is_held && self.view.files.inodes.is_open(self.id)
    }

    /// Checks that the file can be moved at all.
    fn check(&self, stat: &Statx) -> Result<(), Errno> {
        if u32::from(stat.stx_mode) & FILE_TYPE != REGULAR {
            return Err(Errno::INVAL);
        }
        if stat.stx_attributes.intersects(StatxAttributes::IMMUTABLE | StatxAttributes::APPEND) {
            return Err(Errno::PERM);
        }
        if stat.stx_nlink as usize != self.paths.len() {
            return Err(Errno::MLINK);
        }
        Ok(())
    }

    /// Returns the folder of each name in the target, which is made if necessary, and the name.
    fn folders_in_target(&self) -> Result<Vec<(OwnedFd, CString)>, Errno> {
        let folder = |path: &Vec<u8>| {
            let (above, name) = split(path)?;
            Ok((ensure_folders(&self.from.1, &self.to.1, above)?, name))
        };
        self.paths.iter().map(folder).collect()
    }

    /// Returns the folder of each name in the source, after a check that the names still lead to the file.
    fn check_names(&self, file: &Statx) -> Result<Vec<(OwnedFd, CString)>, Errno> {
        self.paths.iter().map(|path| self.check_name(path, file)).collect()
    }

    fn check_name(&self, path: &[u8], file: &Statx) -> Result<(OwnedFd, CString), Errno> {
        let found = find_name(&self.from.1, path)?;
        if found.is(file) { Ok((found.folder, found.name)) } else { Err(Errno::STALE) }
    }

    /// Returns a copy of the file: the one that an interrupted move has left, or a new one without a name.
    fn copy(
        &self,
        file: &OwnedFd,
        stat: &Statx,
        folders: &[(OwnedFd, CString)],
        is_disturbed: &impl Fn() -> bool,
    ) -> Result<NewFile, Errno> {
        for (folder, name) in folders {
            if let Some(left) = open_same(folder, name, file, stat)? {
                return Ok(NewFile::of_interrupted_move(left));
            }
        }
        let made = new_file(&folders[0].0, Mode::RUSR | Mode::WUSR)?;
        // Some flags, such as that of btrfs against copying on write, are for empty files only.
        copy_flags(file, made.fd());
        copy_data(file, made.fd(), stat.stx_size, is_disturbed)?;
        copy_attributes(file, made.fd(), stat)?;
        fs::fsync(made.fd())?;
        Ok(made)
    }

    /// Gives the new file all names that it does not have yet. Returns the positions of these names.
    fn link_all(
        &self,
        made: &NewFile,
        folders: &[(OwnedFd, CString)],
    ) -> Result<Vec<usize>, Errno> {
        let number = stat_fd(made.fd())?.stx_ino;
        let mut done = Vec::new();
        for (at, (folder, name)) in folders.iter().enumerate() {
            match made.link(folder, name) {
                Ok(()) => done.push(at),
                Err(Errno::EXIST)
                    if stat_name(folder, name).is_ok_and(|stat| stat.stx_ino == number) => {}
                Err(errno) => {
                    undo(folders, &done);
                    return Err(errno);
                }
            }
        }
        made.finish();
        let synced = folders.iter().try_for_each(|(folder, _)| sync_folder(folder));
        synced.inspect_err(|_| undo(folders, &done)).map(|()| done)
    }

    /// Removes the old names, and makes the new file the inode's. As long as the old file has a name, the move can be
    /// given up. A file without names cannot get one again (`linkat` fails with `NOENT`), so the last removal decides.
    fn switch(
        &self,
        old: &[(OwnedFd, CString)],
        (new, made_names): (&[(OwnedFd, CString)], &[usize]),
        file: &OwnedFd,
        is_disturbed: &impl Fn() -> bool,
    ) -> Result<bool, Errno> {
        for (at, (folder, name)) in old.iter().enumerate() {
            let removed = match is_disturbed() {
                true => Err(Errno::BUSY),
                false => fs::unlinkat(folder, name.as_c_str(), AtFlags::empty()),
            };
            if let Err(errno) = removed {
                for (folder, name) in &old[..at] {
                    link(file, &self.view.files.on_common_mount(folder)?, name)?;
                }
                undo(new, made_names);
                return Err(errno);
            }
        }
        self.make_known(file, &new[0])
    }

    /// Makes the new file the inode's. Returns `false` if programs go on with the old one.
    fn make_known(
        &self,
        file: &OwnedFd,
        (folder, name): &(OwnedFd, CString),
    ) -> Result<bool, Errno> {
        let view = self.view;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = Arc::new(fs::openat(folder, name.as_c_str(), flags, Mode::empty())?);
        let stat = stat_fd(&*opened)?;
        let anchor = || fs::openat(folder, c".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        let volume = view.files.volumes.of(&stat, anchor)?;
        let handle = volume.has_handles.then(|| handle_of(opened.as_fd())).transpose()?;
        let new = (identity(volume.index, &stat), handle);
        let is_switched = self.switch_inode(&new.0, new.1.as_ref(), &opened)?;
        if !is_switched {
            // Programs that read the old file go on with it, by the kernel; all others find the new one by its name.
            view.files.pins.hold(self.id, Arc::new(file.try_clone().map_err(|_| Errno::MFILE)?));
            view.moves.note_gone(self.id);
            view.files.inodes.detach(self.id);
        }
        Ok(is_switched)
    }

    /// Makes the new file the inode's, unless the kernel moves the data of an open of the old one.
    fn switch_inode(
        &self,
        identity: &Identity,
        handle: Option<&FileHandle>,
        opened: &Arc<OwnedFd>,
    ) -> Result<bool, Errno> {
        let files = &self.view.files;
        let switched = files.inodes.relocate(self.id, identity, self.to.0, handle, || {
            files.forget_descriptors(self.id);
            files.path_fds.put(self.id, Arc::clone(opened));
            if files.pins.get(self.id).is_some() {
                files.pins.hold(self.id, Arc::clone(opened));
            }
        })?;
        let Some(unused) = switched else { return Ok(false) };
        self.view.connection.close_backing(unused);
        Ok(true)
    }

    /// Looks up again the folders that have gained a part, and marks the names on the paths as stale.
    fn drop_folders(&self) {
        let Some(branches) = self.view.folders.branches() else { return };
        self.each_folder(|id, name, _| {
            if branches.get(id).is_none_or(|merged| merged.part(self.to.0).is_none()) {
                branches.drop_folder(id);
            }
            branches.mark_stale(id, name);
        });
        // The look-up of a folder is one of those above as well.
        self.each_folder(|id, _, has_file| {
            if has_file {
                // A folder that was removed meanwhile has no names.
                let _ = self.view.folders.folder(id);
            }
        });
    }

    /// Invalidates the kernel's caches of the changed names and attributes.
    fn invalidate(&self, is_switched: bool) {
        let connection = &self.view.connection;
        self.drop_folders();
        self.each_folder(|id, name, has_file| {
            connection.invalidate_attributes(id);
            if has_file && !is_switched {
                let entry = Notification::Entry { parent: id.0, name: name.to_bytes() };
                // The readers notice if the connection is gone.
                let _ = connection.notify(&entry);
            }
        });
        if is_switched {
            connection.invalidate_attributes(self.id);
        }
    }

    /// Calls `each` for all known folders on the file's paths, with the next name on the path, and whether that is the
    /// file's.
    fn each_folder(&self, each: impl Fn(InodeId, &CStr, bool)) {
        for path in &self.paths {
            let path = Path::new(OsStr::from_bytes(path));
            for below in path.ancestors() {
                let (Some(above), Some(name)) = (below.parent(), below.file_name()) else {
                    continue;
                };
                let Ok(name) = CString::new(name.as_bytes()) else { continue };
                if let Some(id) = self.view.known_folder(above) {
                    each(id, &name, below == path);
                }
            }
        }
    }
}

/// A name in a folder of a source, and the file to which it leads.
pub(super) struct NamedFile {
    pub(super) folder: OwnedFd,
    pub(super) name: CString,
    stat: Statx,
}

impl NamedFile {
    /// Whether the name leads to this file.
    pub(super) fn is(&self, file: &Statx) -> bool {
        let number = |stat: &Statx| (stat.stx_ino, stat.stx_dev_major, stat.stx_dev_minor);
        number(&self.stat) == number(file)
    }
}

/// Finds the file of a path below the root of a source, without following links.
pub(super) fn find_name(root: &OwnedFd, path: &[u8]) -> Result<NamedFile, Errno> {
    let (above, name) = split(path)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let above = if above.is_empty() { b"." } else { above };
    let folder = fs::openat2(root, above, flags, Mode::empty(), within)?;
    let stat = stat_name(&folder, &name)?;
    Ok(NamedFile { folder, name, stat })
}

/// Splits a path into the folder and the name.
fn split(path: &[u8]) -> Result<(&[u8], CString), Errno> {
    let (above, name) = match path.iter().rposition(|&byte| byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&path[..0], path),
    };
    let name = CString::new(name).map_err(|_| Errno::INVAL)?;
    if matches!(name.to_bytes(), b"" | b"." | b"..") {
        Err(Errno::INVAL)
    } else {
        Ok((above, name))
    }
}

/// Removes the names at these positions.
fn undo(places: &[(OwnedFd, CString)], which: &[usize]) {
    for (folder, name) in which.iter().filter_map(|&at| places.get(at)) {
        // The error that led here is the one to report.
        let _ = fs::unlinkat(folder, name.as_c_str(), AtFlags::empty());
    }
}

pub(super) fn sync_folder(folder: &OwnedFd) -> Result<(), Errno> {
    const CURRENT: &CStr = c".";
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match fs::openat(folder, CURRENT, flags, Mode::empty()).and_then(fs::fsync) {
        // The file system cannot sync folders.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(()),
        synced => synced,
    }
}
