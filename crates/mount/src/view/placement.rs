//! Chooses the source in which a file is created.

use std::hash::{BuildHasher, RandomState};
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::{self, AtFlags, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use super::attribute_names::copy_all;
use super::folder::{BranchDir, Folder};
use super::stat::stat_fd;
use super::state::View;
use crate::actor::set_mode_of_copy;
use crate::inodes::InodeId;
use crate::plan::{CreateOrder, CreateReach};
use crate::source_spec::SourceAccess;

/// The maximum number of folders above a file that are asked for their sources.
const DEPTH_MAX: usize = 2048;

/// Errors of a source that is full or read-only, after which the next source is tried.
const NO_ROOM: [Errno; 3] = [Errno::ROFS, Errno::NOSPC, Errno::DQUOT];

/// Runs `make` in the folder, in the source that the create policy chooses. Read-only and full sources are skipped.
pub(super) fn make_in<T>(
    view: &View,
    folder: &Folder,
    mut make: impl FnMut(&BranchDir) -> Result<T, Errno>,
) -> Result<(BranchDir, T), Errno> {
    let (candidates, mut last) = candidates(view, folder)?;
    for branch in candidates {
        let made = dir_for(view, folder, branch).and_then(|dir| make(&dir).map(|made| (dir, made)));
        match made {
            Err(errno) if NO_ROOM.contains(&errno) => last = errno,
            made => return made,
        }
    }
    Err(last)
}

/// Returns the folder's part in this source, which is created if the source lacks it.
fn dir_for(view: &View, folder: &Folder, branch: u16) -> Result<BranchDir, Errno> {
    match view.folders.dir_in(folder, branch) {
        Err(Errno::XDEV) => copy_folder(view, folder.id, branch),
        dir => dir,
    }
}

/// Returns the folder's part in the source of a file that gets a name there. If the source lacks the folder, it is
/// created unless the mount's options or the source's forbid that; then the error is that of a name on another file
/// system.
pub(super) fn dir_beside(view: &View, folder: &Folder, branch: u16) -> Result<BranchDir, Errno> {
    let Err(Errno::XDEV) = view.folders.dir_in(folder, branch).map(drop) else {
        return view.folders.dir_in(folder, branch);
    };
    if !view.behaviour.make_folders || view.files.roots.access(branch) != SourceAccess::ReadWrite {
        return Err(Errno::XDEV);
    }
    match copy_folder(view, folder.id, branch) {
        // There is a file in the way, or no room for the folder.
        Err(
            Errno::NOTDIR | Errno::EXIST | Errno::LOOP | Errno::ROFS | Errno::NOSPC | Errno::DQUOT,
        ) => Err(Errno::XDEV),
        dir => dir,
    }
}

/// Returns the branches in which a file may be created, the best first, and the error if there is none.
fn candidates(view: &View, folder: &Folder) -> Result<(Vec<u16>, Errno), Errno> {
    let Some(branches) = view.folders.branches() else { return Ok((vec![0], Errno::ROFS)) };
    let policy = view.behaviour.create;
    // No file is created in an absent source.
    let present: Vec<_> =
        branches.roots().present().into_iter().map(|(branch, _)| branch).collect();
    let groups = match policy.reach {
        CreateReach::Parent => vec![parts(view, folder.id)?],
        CreateReach::Near => {
            let mut groups = above(view, folder.id)?;
            groups.push(present);
            groups
        }
        CreateReach::All => vec![present],
        CreateReach::None => Vec::new(),
    };
    let (mut error, mut seen) = (Errno::ROFS, Vec::new());
    let (mut roomy, mut full) = (Vec::new(), Vec::new());
    for group in groups {
        let mut open = Vec::new();
        for branch in group {
            if seen.contains(&branch) {
                continue;
            }
            seen.push(branch);
            match check_room(view, branch) {
                Ok(space) => open.push((branch, space)),
                Err(errno) => error = errno,
            }
        }
        sort(&mut open, policy.order);
        // A file system without a free block may still take an empty file, but not its data.
        let (empty, others): (Vec<_>, Vec<_>) = open.into_iter().partition(|(_, it)| it.free == 0);
        roomy.extend(others.into_iter().map(|(branch, _)| branch));
        full.extend(empty.into_iter().map(|(branch, _)| branch));
    }
    roomy.append(&mut full);
    Ok((roomy, error))
}

/// Returns the branches that have the folder.
fn parts(view: &View, id: InodeId) -> Result<Vec<u16>, Errno> {
    let dirs = view.folders.dirs(&view.folders.folder(id)?)?;
    Ok(dirs.into_iter().map(|dir| dir.branch).collect())
}

/// Returns the branches that have the folder, those that have the folder above, and so on.
fn above(view: &View, id: InodeId) -> Result<Vec<Vec<u16>>, Errno> {
    let (mut groups, mut id) = (vec![parts(view, id)?], id);
    while id != InodeId::ROOT {
        let known = view.files.names.as_ref().and_then(|names| names.get(id));
        let Some((parent, _)) = known.filter(|_| groups.len() < DEPTH_MAX) else { break };
        groups.push(parts(view, parent)?);
        id = parent;
    }
    Ok(groups)
}

/// The free and the used space of a source's file system, in bytes.
#[derive(Debug, Clone, Copy)]
struct Space {
    free: u64,
    used: u64,
}

impl Space {
    /// Returns the used part of the whole, in units of 2⁻⁶⁴: large disks may differ by less than a percentage point.
    fn used_share(self) -> u128 {
        let whole = u128::from(self.used) + u128::from(self.free);
        (u128::from(self.used) << 64) / whole.max(1)
    }
}

/// Returns the space of a source in which files may be created.
fn check_room(view: &View, branch: u16) -> Result<Space, Errno> {
    let roots = &view.files.roots;
    let spec = roots.spec(branch).ok_or(Errno::NODEV)?;
    if spec.access != SourceAccess::ReadWrite {
        return Err(Errno::ROFS);
    }
    let free_min = spec.free_min_bytes.unwrap_or(view.behaviour.free_min_bytes);
    let space = roots.get(branch).and_then(fs::fstatvfs)?;
    let bytes = |blocks: u64| blocks.saturating_mul(space.f_frsize);
    let (free, used) = (bytes(space.f_bavail), bytes(space.f_blocks.saturating_sub(space.f_bfree)));
    if free < free_min { Err(Errno::NOSPC) } else { Ok(Space { free, used }) }
}

/// Sorts sources by preference. The order among equals is that of the sources.
fn sort(sources: &mut [(u16, Space)], order: CreateOrder) {
    match order {
        CreateOrder::First => {}
        CreateOrder::MostFree => sources.sort_by_key(|(_, space)| std::cmp::Reverse(space.free)),
        CreateOrder::LeastFree => sources.sort_by_key(|(_, space)| space.free),
        CreateOrder::LeastUsed => sources.sort_by_key(|(_, space)| space.used),
        CreateOrder::LeastFilled => sources.sort_by_key(|(_, space)| space.used_share()),
        CreateOrder::Random => sort_at_random(sources, |_| 1),
        CreateOrder::RandomByFree => sort_at_random(sources, |space| space.free.max(1)),
    }
}

/// Draws one source after another, each with a probability in proportion to its weight.
fn sort_at_random(sources: &mut [(u16, Space)], weight: impl Fn(&Space) -> u64) {
    for done in 0..sources.len() {
        let rest = &mut sources[done..];
        let sum: u128 = rest.iter().map(|(_, space)| u128::from(weight(space))).sum();
        // A hasher's seed is random, which is enough for a choice of disks.
        let random = RandomState::new().hash_one(done);
        let mut drawn = u128::from(random) % sum.max(1);
        let chosen = rest.iter().position(|(_, space)| {
            let weight = u128::from(weight(space));
            let is_it = drawn < weight;
            drawn = drawn.saturating_sub(weight);
            is_it
        });
        rest.swap(0, chosen.unwrap_or(0));
    }
}

/// Creates the folder in a branch that lacks it, with the same owner, permissions and extended attributes. When this
/// function returns, the new part is watched, so changes of the names that are made there are reported.
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
                copy_all(&source, &fd)?;
                set_mode_of_copy(fd.as_fd(), mode)?;
                Ok(fd)
            });
            made.inspect_err(|_| {
                // A partial copy would add a folder without its permissions to the view.
                let _ = fs::unlinkat(&above.fd, name.as_c_str(), AtFlags::REMOVEDIR);
            })?
        }
        opened => {
            let fd = opened?;
            if branches.get(id).is_some_and(|merged| merged.part(branch).is_some()) {
                return Ok(BranchDir { branch, fd: Arc::new(fd) });
            }
            fd
        }
    };
    // The folder has an additional part, and so has its name in the parent.
    branches.drop_folder(id);
    view.folders.note_change(parent, &name);
    // The kernel does not expect this change, since it did not request it.
    view.connection.invalidate_attributes(parent);
    view.folders.folder(id)?;
    Ok(BranchDir { branch, fd: Arc::new(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(order: CreateOrder) -> Vec<u16> {
        let space = |free, used| Space { free, used };
        let mut sources = vec![(0, space(5, 9)), (1, space(7, 1)), (2, space(5, 3))];
        sort(&mut sources, order);
        sources.into_iter().map(|(branch, _)| branch).collect()
    }

    #[test]
    fn sources_are_sorted_by_their_space() {
        assert_eq!(sorted(CreateOrder::First), [0, 1, 2]);
        assert_eq!(sorted(CreateOrder::MostFree), [1, 0, 2]);
        assert_eq!(sorted(CreateOrder::LeastFree), [0, 2, 1]);
        assert_eq!(sorted(CreateOrder::LeastUsed), [1, 2, 0]);
    }

    #[test]
    fn the_least_filled_source_is_that_with_the_least_share_whatever_its_size() {
        let space = |free, used| Space { free, used };
        let share = |free, used| space(free, used).used_share();
        assert!(share(60, 9) < share(5, 3) && share(5, 3) < share(0, 1));
        assert_eq!(share(10, 30), share(1, 3));
        assert!(share(u64::MAX - 1, 1) < share(u64::MAX - 2, 2));
        assert_eq!(share(0, 0), 0);
        let mut sources = [(0, space(5, 3)), (1, space(60, 9)), (2, space(0, 0))];
        sort(&mut sources, CreateOrder::LeastFilled);
        assert_eq!(sources.map(|(branch, _)| branch), [2, 1, 0]);
    }

    #[test]
    fn a_random_order_has_each_source_once_and_follows_the_weights() {
        let mut firsts = [0; 3];
        for _ in 0..2000 {
            let mut sources: Vec<_> = (0..3)
                .map(|branch| (branch, Space { free: u64::from(branch) * 1000, used: 0 }))
                .collect();
            sort(&mut sources, CreateOrder::RandomByFree);
            firsts[usize::from(sources[0].0)] += 1;
            sources.sort_by_key(|source| source.0);
            assert_eq!(sources.iter().map(|source| source.0).collect::<Vec<_>>(), [0, 1, 2]);
        }
        // The first has one byte in three thousand, the others one third and two thirds.
        assert!(firsts[0] < 50 && firsts[1] > 400 && firsts[2] > firsts[1], "{firsts:?}");
    }
}
