//! The space that is left, and writing everything to disk.

use rustix::fs;
use rustix::io::Errno;
use thruway_fuse::Answer;
use thruway_fuse::wire::StatFsOut;

use super::View;
use crate::inodes::InodeId;

impl View {
    pub(super) fn space(&self, id: InodeId, answer: &mut Answer) -> Result<(), Errno> {
        let space = fs::fstatvfs(self.place(id)?)?;
        let narrow = |wide: u64| u32::try_from(wide).unwrap_or(u32::MAX);
        answer.put(&StatFsOut {
            blocks: space.f_blocks,
            free: space.f_bfree,
            available: space.f_bavail,
            files: space.f_files,
            files_free: space.f_ffree,
            block_size: narrow(space.f_bsize),
            name_length: narrow(space.f_namemax),
            fragment_size: narrow(space.f_frsize),
            padding: 0,
            spare: [0; 6],
        });
        Ok(())
    }

    pub(super) fn sync_volumes(&self) -> Result<(), Errno> {
        for volume in self.volumes.all() {
            fs::syncfs(volume.anchor())?;
        }
        Ok(())
    }
}
