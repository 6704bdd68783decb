//! Copies that an interrupted move has left hidden.
//!
//! A file that moves to a source before its own is shown there as soon as it has its names there. If the worker dies
//! before the old names are removed, they are hidden. The next move removes them, if the old file is still the same.

use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{self, AtFlags, Statx};
use rustix::io::Errno;
use thruway_sys::lease::ReadLease;

use super::copying::open_same;
use super::relocation::{NamedFile, find_name, sync_folder};
use super::stat::stat_fd;
use super::state::View;
use crate::inodes::InodeId;

/// The copy of a file in a source behind the one that the view shows.
struct LeftCopy<'a> {
    view: &'a View,
    /// The root of the source of the file that is shown.
    shown_root: Arc<OwnedFd>,
    left_root: Arc<OwnedFd>,
    /// All names of both files, relative to the source.
    paths: &'a [Vec<u8>],
}

/// Removes all names that the file's copy has in this source.
///
/// # Errors
/// - `EXIST`: the source has another file of the name, or the view shows its file by one of the names.
/// - `MLINK`: the copy has further names.
/// - `BUSY`: the copy is open for writing.
/// - `ROFS`, `NODEV`: the source must not be changed, or is absent.
pub(super) fn remove_left_copy(
    view: &View,
    id: InodeId,
    left: u16,
    paths: &[Vec<u8>],
) -> Result<(), Errno> {
    let inode = view.files.inodes.get(id)?;
    let roots = &view.files.roots;
    roots.check_writable(left)?;
    let order = roots.table().order;
    let place = |branch: u16| order.iter().position(|&other| other == branch);
    if place(inode.branch) >= place(left) {
        return Err(Errno::EXIST);
    }
    let (shown_root, left_root) = (roots.get(inode.branch)?, roots.get(left)?);
    LeftCopy { view, shown_root, left_root, paths }.remove(id)
}

impl LeftCopy<'_> {
    fn remove(&self, id: InodeId) -> Result<(), Errno> {
        let shown = self.view.files.open_for_reading(id)?;
        let stat = stat_fd(&shown)?;
        let first = self.left_names()?.into_iter().next().ok_or(Errno::INVAL)?;
        let left = open_same(&first.folder, &first.name, &shown, &stat)?.ok_or(Errno::EXIST)?;
        let lease = ReadLease::take(left.as_fd()).map_err(|_| Errno::BUSY)?;
        // The copy may have been changed before the lease.
        open_same(&first.folder, &first.name, &shown, &stat)?.ok_or(Errno::EXIST)?;
        fs::fsync(&shown)?;
        self.names_in(&self.shown_root)?.iter().try_for_each(|it| sync_folder(&it.folder))?;
        let alone = self.view.moves.hold_names();
        let left_stat = stat_fd(&left)?;
        let names = self.left_names()?;
        self.check(&names, &left_stat)?;
        self.check(&self.names_in(&self.shown_root)?, &stat)?;
        if !lease.is_unbroken() {
            return Err(Errno::BUSY);
        }
        for NamedFile { folder, name, .. } in &names {
            fs::unlinkat(folder, name.as_c_str(), AtFlags::empty())?;
        }
        drop(lease);
        self.keep_open(left, &left_stat);
        drop(alone);
        self.invalidate();
        Ok(())
    }

    /// Checks that the names lead to this file, and are all of its names.
    fn check(&self, names: &[NamedFile], file: &Statx) -> Result<(), Errno> {
        if file.stx_nlink as usize != self.paths.len() {
            return Err(Errno::MLINK);
        }
        if names.iter().all(|found| found.is(file)) { Ok(()) } else { Err(Errno::EXIST) }
    }

    fn left_names(&self) -> Result<Vec<NamedFile>, Errno> {
        self.names_in(&self.left_root)
    }

    fn names_in(&self, root: &OwnedFd) -> Result<Vec<NamedFile>, Errno> {
        let find = |path: &Vec<u8>| match find_name(root, path) {
            // The view shows the copy by this name.
            Err(Errno::NOENT) => Err(Errno::EXIST),
            found => found,
        };
        self.paths.iter().map(find).collect()
    }

    /// Lets programs that opened the copy before the move go on with it.
    fn keep_open(&self, left: OwnedFd, stat: &Statx) {
        if let Some(id) = self.view.files.known(stat) {
            self.view.files.pins.hold(id, Arc::new(left));
            self.view.moves.note_gone(id);
            self.view.files.inodes.detach(id);
        }
    }

    fn invalidate(&self) {
        let Some(branches) = self.view.folders.branches() else { return };
        for path in self.paths.iter().map(|path| Path::new(OsStr::from_bytes(path))) {
            let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { continue };
            let Ok(name) = CString::new(name.as_bytes()) else { continue };
            if let Some(folder) = self.view.known_folder(above) {
                branches.mark_stale(folder, &name);
                self.view.connection.invalidate_attributes(folder);
            }
        }
    }
}
