//! An inode that was just found or made in a folder.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use thruway_sys::handle::FileHandle;

use super::folder::BranchDir;
use super::stat::{handle_of, open_name};
use crate::actor::errno;

/// How to open an inode that was just found or made in a folder.
#[derive(Clone, Copy)]
pub(super) enum Found<'a> {
    /// By its name there.
    Name(&'a BranchDir, &'a CStr),
    /// By its descriptor; it also has a name there.
    Made(&'a BranchDir, BorrowedFd<'a>, &'a CStr),
    /// By its descriptor; it has no name.
    Nameless(&'a BranchDir, BorrowedFd<'a>),
}

impl<'a> Found<'a> {
    pub(super) fn branch(self) -> u16 {
        let (Self::Name(dir, _) | Self::Made(dir, ..) | Self::Nameless(dir, _)) = self;
        dir.branch
    }

    pub(super) fn name(self) -> Option<&'a CStr> {
        match self {
            Self::Name(_, name) | Self::Made(_, _, name) => Some(name),
            Self::Nameless(..) => None,
        }
    }

    pub(super) fn handle(self) -> Result<FileHandle, Errno> {
        match self {
            Self::Name(dir, name) => {
                FileHandle::of(dir.fd.as_fd(), name).map_err(|error| errno(&error))
            }
            Self::Made(_, file, _) | Self::Nameless(_, file) => handle_of(file),
        }
    }

    /// A folder on its file system.
    pub(super) fn anchor(self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match self {
            Self::Name(dir, name) => fs::openat(&dir.fd, name, flags, Mode::empty()),
            // It was made in a folder, whose file system is known already.
            Self::Made(..) | Self::Nameless(..) => Err(Errno::XDEV),
        }
    }

    /// Open with `O_PATH`, or as it was made.
    pub(super) fn path_fd(self) -> Result<OwnedFd, Errno> {
        match self {
            Self::Name(dir, name) => open_name(dir.fd.as_fd(), name),
            Self::Made(_, file, _) | Self::Nameless(_, file) => {
                file.try_clone_to_owned().map_err(|error| errno(&error))
            }
        }
    }
}
