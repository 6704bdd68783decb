//! Names that move or go.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{self, AtFlags, RenameFlags};
use rustix::io::Errno;
use thruway_fuse::Answer;

use super::View;
use super::lookup::stat_name;
use crate::inodes::InodeId;

impl View {
    pub(super) fn unlink(&self, parent: InodeId, name: &CStr) -> Result<(), Errno> {
        fs::unlinkat(self.place(parent)?, name, AtFlags::empty())
    }

    pub(super) fn remove_folder(&self, parent: InodeId, name: &CStr) -> Result<(), Errno> {
        let folder = self.place(parent)?;
        let remove = || fs::unlinkat(&folder, name, AtFlags::REMOVEDIR);
        self.keeping_folder(folder.as_fd(), name, remove)
    }

    pub(super) fn rename(
        &self,
        (parent, name): (InodeId, &CStr),
        (new_parent, new_name): (InodeId, &CStr),
        flags: u32,
    ) -> Result<(), Errno> {
        let (folder, new_folder) = (self.place(parent)?, self.place(new_parent)?);
        let flags = RenameFlags::from_bits_retain(flags);
        self.keeping_folder(new_folder.as_fd(), new_name, || {
            fs::renameat_with(&folder, name, &new_folder, new_name, flags)
        })?;
        self.note_name(new_parent, new_folder.as_fd(), new_name);
        if flags.contains(RenameFlags::EXCHANGE) {
            self.note_name(parent, folder.as_fd(), name);
        }
        Ok(())
    }

    /// Remembers the inode's new name, where names are remembered.
    fn note_name(&self, parent: InodeId, folder: BorrowedFd<'_>, name: &CStr) {
        let Some(names) = &self.names else { return };
        let known = stat_name(folder, name).ok().and_then(|stat| self.known(&stat));
        if let Some(id) = known {
            names.remember(id, parent, name.to_bytes());
        }
    }

    pub(super) fn read_link(&self, id: InodeId, answer: &mut Answer) -> Result<(), Errno> {
        let target = fs::readlinkat(self.place(id)?, c"", Vec::new())?;
        answer.put_bytes(target.as_bytes());
        Ok(())
    }
}
