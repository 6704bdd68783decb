//! Chooses the source in which a file is created.

use std::sync::Arc;

use rustix::fs::{self, AtFlags, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use super::folder::{BranchDir, Folder};
use super::stat::stat_fd;
use super::state::View;
use super::xattr;
use crate::branches::Branches;
use crate::inodes::InodeId;
use crate::plan::CreatePolicy;
use crate::proc_path::ProcPath;

/// Runs `make` in the folder, in the source that the create policy chooses. Read-only sources are skipped.
pub(super) fn make_in<T>(
    view: &View,
    folder: &Folder,
    mut make: impl FnMut(&BranchDir) -> Result<T, Errno>,
) -> Result<(BranchDir, T), Errno> {
    let mut last = Errno::ROFS;
    for branch in candidates(view, folder)? {
        let dir = match view.folders.dir_in(folder, branch) {
            Err(Errno::XDEV) => copy_folder(view, folder.id, branch),
            dir => dir,
        };
        match dir.and_then(|dir| make(&dir).map(|made| (dir, made))) {
            Err(Errno::ROFS) => last = Errno::ROFS,
            made => return made,
        }
    }
    Err(last)
}

/// Returns the branches in which a file may be created, the best first.
fn candidates(view: &View, folder: &Folder) -> Result<Vec<u16>, Errno> {
    let Some(branches) = view.folders.branches() else { return Ok(vec![0]) };
    // No file is created in an absent source.
    let all = branches.roots().present().into_iter().map(|(branch, _)| branch);
    Ok(match branches.create() {
        CreatePolicy::Parent => {
            view.folders.dirs(folder)?.into_iter().map(|dir| dir.branch).collect()
        }
        CreatePolicy::First => all.collect(),
        CreatePolicy::MostFree => {
            let mut all: Vec<_> = all.collect();
            all.sort_by_cached_key(|&branch| std::cmp::Reverse(free_bytes(branches, branch)));
            all
        }
        CreatePolicy::None => Vec::new(),
    })
}

/// Creates the folder in a branch that lacks it, with the same owner, permissions and extended attributes.
fn copy_folder(view: &View, id: InodeId, branch: u16) -> Result<BranchDir, Errno> {
    let branches = view.folders.branches().ok_or(Errno::XDEV)?;
    if id == InodeId::ROOT {
        return Ok(BranchDir { branch, fd: branches.roots().get(branch)? });
    }
    let known = view.files.names.as_ref().and_then(|names| names.get(id));
    let (parent, name) = known.ok_or(Errno::STALE)?;
    let above = copy_folder(view, parent, branch)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || fs::openat(&above.fd, name.as_c_str(), flags, Mode::empty());
    let fd = match open() {
        Err(Errno::NOENT) => {
            let source = view.files.path_fd(id)?;
            let stat = stat_fd(&source)?;
            let mode = Mode::from_raw_mode(u32::from(stat.stx_mode) & 0o7777);
            fs::mkdirat(&above.fd, name.as_c_str(), Mode::RWXU)?;
            let made = open().and_then(|fd| {
                let (uid, gid) = (Uid::from_raw(stat.stx_uid), Gid::from_raw(stat.stx_gid));
                fs::chownat(&fd, c"", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?;
                xattr::copy_all(&source, &fd)?;
                let path = ProcPath::new(std::os::fd::AsFd::as_fd(&fd));
                fs::chmodat(fs::CWD, path.as_c_str(), mode, AtFlags::empty())?;
                Ok(fd)
            });
            made.inspect_err(|_| {
                // A partial copy would add a folder without its permissions to the view.
                let _ = fs::unlinkat(&above.fd, name.as_c_str(), AtFlags::REMOVEDIR);
            })?
        }
        opened => opened?,
    };
    // The folder has an additional part, and so has its name in the parent.
    branches.drop_folder(id);
    if let Ok(parent) = view.folders.folder(parent) {
        view.folders.note_change(&parent, &name);
        // The kernel does not expect this change, since it did not request it.
        view.connection.invalidate_attributes(parent.id);
    }
    Ok(BranchDir { branch, fd: Arc::new(fd) })
}

fn free_bytes(branches: &Branches, branch: u16) -> u64 {
    let root = branches.roots().get(branch);
    let space = root.and_then(fs::fstatvfs).ok();
    space.map_or(0, |space| space.f_bavail.saturating_mul(space.f_frsize))
}
