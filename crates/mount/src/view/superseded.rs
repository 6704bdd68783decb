//! Folders of the sources that the kernel knows as two inodes.
//!
//! A folder may be made anew on one disk while another disk, which has a folder of that name, is away. Once that disk
//! is back, both are parts of one merged folder, and programs may use both inodes. The inode at the folder's place goes
//! on, and each other inode of a part is **superseded**: no look-up finds it any more, and its names are not cached.
//!
//! A folder below a superseded one gets another inode, too, when it is looked up at its place. The kernel would move
//! the former inode there, which it cannot do within `rename(2)`: the rename would fail with `ESTALE`.

use super::folders::Folders;
use crate::branches::{Branches, Part};
use crate::inodes::{Identity, InodeId};

impl Folders {
    /// Whether another inode has taken the folder of this inode over.
    pub(super) fn is_superseded(&self, id: InodeId) -> bool {
        self.files.inodes.get(id).is_ok() && self.files.inodes.flags(id).is_detached()
    }

    /// Notes the place of a merged folder, before its name is remembered.
    pub(super) fn note_place(&self, id: InodeId, parent: InodeId, name: &[u8]) {
        let before = self.files.note_place(id, parent, name);
        if let (Some(before), Some(branches)) = (before, self.branches()) {
            // From now on, changes are reported for this inode.
            [before, id].iter().for_each(|id| branches.drop_folder(*id));
        }
    }

    /// Whether changes in the folder may be reported for this inode. They are reported for one inode: the one at the
    /// folder's place. The other inodes that programs still use are not watched, and their names are not cached.
    pub(super) fn may_be_watched(&self, id: InodeId) -> bool {
        !self.is_superseded(id) && self.place_holder(id).is_none_or(|holder| holder == id)
    }

    /// Whether the inode's own folder is still at the inode's place, in any source.
    pub(super) fn is_at_its_place(&self, id: InodeId) -> bool {
        let Ok(own) = self.files.inodes.get(id).map(|inode| inode.identity) else { return false };
        let is_own = |part: &Part| part.identity.is_same_file(&own);
        self.part_fds(id).is_ok_and(|fds| {
            fds.iter().flat_map(|(branch, fd)| self.new_part(id, *branch, fd)).any(|it| is_own(&it))
        })
    }

    /// Makes the inode the only one of all these parts, if it is the inode at its place.
    pub(super) fn supersede_others(&self, branches: &Branches, id: InodeId, parts: &[Part]) {
        if parts.len() < 2 || !self.has_place(id) {
            return;
        }
        let Ok(own) = self.files.inodes.get(id).map(|inode| inode.identity) else { return };
        // Otherwise the inode's own folder has gone, and another one is at its place.
        if parts.iter().any(|part| part.identity.is_same_file(&own)) {
            let known = |part: &Part| self.files.inodes.find_known(&part.identity);
            let others = parts.iter().filter_map(known).filter(|other| *other != id);
            others.for_each(|other| self.supersede(branches, other));
        }
    }

    /// Supersedes the inode of a folder that was found in `parent`, if the inode is known below a superseded folder.
    pub(super) fn supersede_below(
        &self,
        branches: &Branches,
        parent: InodeId,
        identity: &Identity,
    ) {
        let Some(id) = self.files.inodes.find_known(identity) else { return };
        let above = self.files.names.as_ref().and_then(|names| names.get(id));
        let is_below = above.is_some_and(|(above, _)| above != parent && self.is_superseded(above));
        if is_below && !self.is_superseded(parent) {
            self.supersede(branches, id);
        }
    }

    /// Whether the inode is the one that was found last at its place, and was not removed through the mount.
    fn has_place(&self, id: InodeId) -> bool {
        self.place_holder(id) == Some(id) && self.files.pins.get(id).is_none()
    }

    /// Returns the inode that was found last at the place of this one.
    fn place_holder(&self, id: InodeId) -> Option<InodeId> {
        let (parent, name) = self.files.names.as_ref()?.get(id)?;
        self.files.folder_at(parent, &name)
    }

    fn supersede(&self, branches: &Branches, id: InodeId) {
        self.files.inodes.detach(id);
        branches.drop_folder(id);
    }
}
