//! Makes room for a write: when a source is full, the file moves to another one.

use rustix::fs;
use rustix::io::Errno;

use super::relocation::relocate;
use super::stat::stat_fd;
use super::state::View;
use crate::inodes::InodeId;
use crate::source_spec::SourceAccess;

/// The errors of a source that is full.
const FULL: [Errno; 2] = [Errno::NOSPC, Errno::DQUOT];

/// The maximum number of attempts to move a file that other programs open meanwhile.
const ATTEMPTS_MAX: usize = 5;

/// Runs `write`, which writes `length` bytes to the inode. If the source is full, the file moves to another source, and
/// `write` runs again there.
pub(super) fn with_room<T>(
    view: &View,
    id: InodeId,
    length: u64,
    mut write: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Errno> {
    if !view.behaviour.moves_when_full {
        let _shared = view.moves.share_file(id);
        return write();
    }
    loop {
        let branch = view.files.inodes.get(id)?.branch;
        let written = {
            let _shared = view.moves.share_file(id);
            write()
        };
        match written {
            Err(errno) if FULL.contains(&errno) => {
                make_room(view, id, branch, length).map_err(|_| errno)?;
            }
            written => return written,
        }
    }
}

/// Moves the file away from this branch, unless another thread has done so.
fn make_room(view: &View, id: InodeId, branch: u16, length: u64) -> Result<(), Errno> {
    let _held = view.moves.hold_file(id);
    if view.files.inodes.get(id)?.branch != branch {
        return Ok(());
    }
    // An open whose data the kernel moves by itself cannot follow the file.
    view.folders.branches().ok_or(Errno::NOSPC)?;
    let stat = stat_fd(view.files.path_fd(id)?)?;
    let needed = stat.stx_blocks.saturating_mul(512).saturating_add(length);
    let mut last = Errno::NOSPC;
    for target in targets(view, branch, needed) {
        for _ in 0..ATTEMPTS_MAX {
            match relocate(view, id, target, &[], true) {
                Ok(()) => return Ok(()),
                Err(errno) => last = errno,
            }
            if last != Errno::BUSY {
                break;
            }
        }
    }
    Err(last)
}

/// Returns the other sources with room for so many bytes, those with the most first.
fn targets(view: &View, branch: u16, needed: u64) -> Vec<u16> {
    let roots = &view.files.roots;
    let mut all: Vec<(u64, u16)> = Vec::new();
    for (other, root) in roots.present() {
        let (Some(spec), Ok(space)) = (roots.spec(other), fs::fstatvfs(root)) else { continue };
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        let kept = spec.free_min_bytes.unwrap_or(view.behaviour.free_min_bytes);
        let takes_files = other != branch && spec.access == SourceAccess::ReadWrite;
        if takes_files && free > needed.saturating_add(kept) {
            all.push((free, other));
        }
    }
    all.sort_unstable_by_key(|(free, _)| std::cmp::Reverse(*free));
    all.into_iter().map(|(_, other)| other).collect()
}
