//! An inode that was just found or created in a folder.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use thruway_sys::handle::FileHandle;

use super::folder::BranchDir;
use super::stat::{handle_of, open_name};
use crate::actor::errno;
use crate::mounts::MountTable;
use crate::sources;

/// The way to open an inode that was just found or created in a folder.
#[derive(Clone, Copy)]
pub(super) enum FoundInode<'a> {
    /// By its name in the folder.
    Named(&'a BranchDir, &'a CStr),
    /// By its descriptor. The inode also has a name in the folder.
    Created(&'a BranchDir, BorrowedFd<'a>, &'a CStr),
    /// By its descriptor. The inode has no name.
    Nameless(&'a BranchDir, BorrowedFd<'a>),
}

impl<'a> FoundInode<'a> {
    pub(super) fn branch(self) -> u16 {
        let (Self::Named(dir, _) | Self::Created(dir, ..) | Self::Nameless(dir, _)) = self;
        dir.branch
    }

    pub(super) fn name(self) -> Option<&'a CStr> {
        match self {
            Self::Named(_, name) | Self::Created(_, _, name) => Some(name),
            Self::Nameless(..) => None,
        }
    }

    pub(super) fn handle(self) -> Result<FileHandle, Errno> {
        match self {
            Self::Named(dir, name) => {
                FileHandle::of(dir.fd.as_fd(), name).map_err(|error| errno(&error))
            }
            Self::Created(_, file, _) | Self::Nameless(_, file) => handle_of(file),
        }
    }

    /// Opens a folder on the inode's file system, or the inode itself if it is a file that is mounted on another.
    pub(super) fn anchor(self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match self {
            Self::Named(dir, name) => match fs::openat(&dir.fd, name, flags, Mode::empty()) {
                Err(Errno::NOTDIR) => mounted_file(&dir.fd, name),
                opened => opened,
            },
            // The file was created in a folder, whose file system is already known.
            Self::Created(..) | Self::Nameless(..) => Err(Errno::XDEV),
        }
    }

    /// Returns a descriptor of the inode, open with `O_PATH` or in the way in which the inode was created.
    pub(super) fn path_fd(self) -> Result<OwnedFd, Errno> {
        match self {
            Self::Named(dir, name) => open_name(dir.fd.as_fd(), name),
            Self::Created(_, file, _) | Self::Nameless(_, file) => {
                file.try_clone_to_owned().map_err(|error| errno(&error))
            }
        }
    }
}

/// Opens a file on which another file system's file is mounted.
fn mounted_file(folder: impl AsFd, name: &CStr) -> Result<OwnedFd, Errno> {
    let file = open_name(folder.as_fd(), name)?;
    let table = MountTable::read().map_err(|error| errno(&error))?;
    // Otherwise the file is one of its folder's file system, which has been unmounted and released.
    match table.get(sources::mount_number(&file)?) {
        Some(_) => Ok(file),
        None => Err(Errno::STALE),
    }
}
