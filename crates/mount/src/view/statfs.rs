//! Reports free space, and writes all data to disk.

use std::collections::BTreeSet;

use rustix::fs::{self, StatVfs};
use rustix::io::Errno;
use thruway_fuse::wire::StatFsOut;

use super::context::Context;
use crate::roots::Roots;
use crate::source_spec::SourceAccess;
use crate::upper::UPPER;

pub(super) fn statfs(cx: &mut Context<'_>) -> Result<(), Errno> {
    let id = cx.inode();
    let view = cx.view;
    let space = match view.folders.branches() {
        None => fs::fstatvfs(view.folders.path_fd(id)?)?,
        Some(branches) if view.folders.upper().is_some() => {
            fs::fstatvfs(branches.roots().get(UPPER)?)?
        }
        Some(branches) => sum(branches.roots())?,
    };
    let narrow = |wide: u64| u32::try_from(wide).unwrap_or(u32::MAX);
    cx.reply.put(&StatFsOut {
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

pub(super) fn syncfs(cx: &mut Context<'_>) -> Result<(), Errno> {
    let view = cx.view;
    for volume in view.files.volumes.all() {
        // The data of an unmounted file system is already on disk.
        if let Ok(anchor) = volume.anchor() {
            fs::syncfs(anchor)?;
        }
    }
    Ok(())
}

/// Returns the sum over all file systems of the sources, in blocks of the first file system. A file system that fails
/// is left out. Space is only available in sources that take new files.
fn sum(roots: &Roots) -> Result<StatVfs, Errno> {
    let mut seen = BTreeSet::new();
    let mut total: Option<StatVfs> = None;
    let takes_files = |branch| roots.access(branch) == SourceAccess::ReadWrite;
    // Of two sources on one file system, the one that takes files counts.
    let (open, closed): (Vec<_>, Vec<_>) =
        roots.present().into_iter().partition(|(branch, _)| takes_files(*branch));
    for (branch, folder) in open.iter().chain(&closed) {
        let Ok(stat) = fs::fstat(folder) else { continue };
        let Ok(mut space) = fs::fstatvfs(folder) else { continue };
        if !seen.insert(stat.st_dev) {
            continue;
        }
        if !takes_files(*branch) {
            space.f_bavail = 0;
        }
        match &mut total {
            None => total = Some(space),
            Some(total) => add(total, &space),
        }
    }
    total.ok_or(Errno::IO)
}

fn add(total: &mut StatVfs, more: &StatVfs) {
    let unit = total.f_frsize.max(1);
    let blocks = |count: u64| count.saturating_mul(more.f_frsize) / unit;
    total.f_blocks = total.f_blocks.saturating_add(blocks(more.f_blocks));
    total.f_bfree = total.f_bfree.saturating_add(blocks(more.f_bfree));
    total.f_bavail = total.f_bavail.saturating_add(blocks(more.f_bavail));
    total.f_files = total.f_files.saturating_add(more.f_files);
    total.f_ffree = total.f_ffree.saturating_add(more.f_ffree);
    total.f_namemax = total.f_namemax.min(more.f_namemax);
}
