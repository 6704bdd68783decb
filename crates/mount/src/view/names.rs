//! Names that move or go.

use std::ffi::CStr;

use rustix::fs::{self, AtFlags, RenameFlags};
use rustix::io::Errno;
use thruway_fuse::Answer;

use super::View;
use crate::inodes::InodeId;

impl View {
    pub(super) fn unlink(&self, parent: InodeId, name: &CStr) -> Result<(), Errno> {
        fs::unlinkat(self.place(parent)?, name, AtFlags::empty())
    }

    pub(super) fn remove_folder(&self, parent: InodeId, name: &CStr) -> Result<(), Errno> {
        fs::unlinkat(self.place(parent)?, name, AtFlags::REMOVEDIR)
    }

    pub(super) fn rename(
        &self,
        (parent, name): (InodeId, &CStr),
        (new_parent, new_name): (InodeId, &CStr),
        flags: u32,
    ) -> Result<(), Errno> {
        let (folder, new_folder) = (self.place(parent)?, self.place(new_parent)?);
        let flags = RenameFlags::from_bits_retain(flags);
        fs::renameat_with(&folder, name, &new_folder, new_name, flags)
    }

    pub(super) fn read_link(&self, id: InodeId, answer: &mut Answer) -> Result<(), Errno> {
        let target = fs::readlinkat(self.place(id)?, c"", Vec::new())?;
        answer.put_bytes(target.as_bytes());
        Ok(())
    }
}
