//! Names that move or go.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{self, AtFlags, RenameFlags};
use rustix::io::Errno;
use thruway_fuse::Answer;

use super::View;
use super::folder::{Folder, Spot};
use super::lookup::{FILE_TYPE, FOLDER, stat_name};
use crate::inodes::InodeId;

impl View {
    /// Removes the name from every source that has it, the first one last: what is seen until then is
    /// the whole.
    pub(super) fn unlink(&self, parent: InodeId, name: &CStr) -> Result<(), Errno> {
        let folder = self.folder(parent)?;
        let unlink = |spot: &Spot| fs::unlinkat(&spot.place, name, AtFlags::empty());
        self.remove(&folder, name, unlink)
    }

    pub(super) fn remove_folder(&self, parent: InodeId, name: &CStr) -> Result<(), Errno> {
        let folder = self.folder(parent)?;
        self.remove(&folder, name, |spot| {
            let remove = || fs::unlinkat(&spot.place, name, AtFlags::REMOVEDIR);
            self.keeping_folder(spot.place.as_fd(), name, remove)
        })
    }

    fn remove(
        &self,
        folder: &Folder,
        name: &CStr,
        remove: impl Fn(&Spot) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let spots = self.all_with(folder, name)?;
        let removed = spots.iter().rev().try_for_each(|spot| match remove(spot) {
            // A source that is hidden has something else there, which stays.
            Err(Errno::NOTDIR | Errno::ISDIR) if spot.branch != spots[0].branch => Ok(()),
            removed => removed,
        });
        self.note_change(folder, name);
        removed
    }

    /// Renames in every source that has the old name. If one of them does not have the new folder, that
    /// is another file system for whoever asks.
    pub(super) fn rename(
        &self,
        (parent, name): (InodeId, &CStr),
        (new_parent, new_name): (InodeId, &CStr),
        flags: u32,
    ) -> Result<(), Errno> {
        let (folder, new_folder) = (self.folder(parent)?, self.folder(new_parent)?);
        let flags = RenameFlags::from_bits_retain(flags);
        let from = self.all_with(&folder, name)?;
        let to: Result<Vec<_>, _> =
            from.iter().map(|spot| self.spot_in(&new_folder, spot.branch)).collect();
        let to = to?;
        let in_the_way = self.in_the_way(&new_folder, new_name, &from, flags)?;
        let renamed = from.iter().zip(&to).rev().try_for_each(|(from, to)| {
            self.keeping_folder(to.place.as_fd(), new_name, || {
                fs::renameat_with(&from.place, name, &to.place, new_name, flags)
            })
        });
        if renamed.is_ok() {
            // What would hide the new name.
            for spot in in_the_way {
                fs::unlinkat(&spot.place, new_name, AtFlags::empty())?;
            }
        }
        self.note_change(&folder, name);
        self.note_change(&new_folder, new_name);
        renamed?;
        self.note_name(new_parent, to[0].place.as_fd(), new_name);
        if flags.contains(RenameFlags::EXCHANGE) {
            self.note_name(parent, from[0].place.as_fd(), name);
        }
        Ok(())
    }

    /// What sources before those of a rename have under its new name.
    fn in_the_way(
        &self,
        folder: &Folder,
        name: &CStr,
        from: &[Spot],
        flags: RenameFlags,
    ) -> Result<Vec<Spot>, Errno> {
        if Self::merging(folder).is_none() {
            return Ok(Vec::new());
        }
        let (spot, stat) = match self.find(folder, name) {
            Err(Errno::NOENT) => return Ok(Vec::new()),
            found => found?,
        };
        if flags.contains(RenameFlags::NOREPLACE) {
            return Err(Errno::EXIST);
        }
        let is_same_source = from.len() == 1 && spot.branch == from[0].branch;
        if flags.contains(RenameFlags::EXCHANGE) && !is_same_source {
            return Err(Errno::XDEV);
        }
        if u32::from(stat.stx_mode) & FILE_TYPE == FOLDER && !is_same_source {
            return Err(Errno::XDEV);
        }
        let mut spots = self.all_with(folder, name)?;
        spots.retain(|spot| spot.branch < from[0].branch);
        Ok(spots)
    }

    /// Remembers the inode's new name, where names are remembered.
    fn note_name(&self, parent: InodeId, folder: BorrowedFd<'_>, name: &CStr) {
        if self.names.is_none() {
            return;
        }
        let Ok(stat) = stat_name(folder, name) else { return };
        if let Some(id) = self.known(&stat) {
            self.note_found(id, parent, name.to_bytes(), &stat);
        }
    }

    pub(super) fn read_link(&self, id: InodeId, answer: &mut Answer) -> Result<(), Errno> {
        let target = fs::readlinkat(self.place(id)?, c"", Vec::new())?;
        answer.put_bytes(target.as_bytes());
        Ok(())
    }
}
