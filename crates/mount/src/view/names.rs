//! Removes and renames names.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{self, AtFlags, RenameFlags};
use rustix::io::Errno;

use super::context::Context;
use super::folder::{BranchDir, Folder};
use super::layered_names::{self, LayeredRename};
use super::placement::dir_beside;
use super::several_sources;
use super::stat::{is_folder, stat_name};
use super::state::View;
use crate::inodes::InodeId;

/// Removes the name from every source that has it. The first source comes last, so the merged view does not change
/// until then.
pub(super) fn unlink(cx: &mut Context<'_>, name: &CStr) -> Result<(), Errno> {
    let parent = cx.inode();
    let view = cx.view;
    let folder = view.folders.folder(parent)?;
    if view.folders.upper().is_some() {
        return layered_names::remove(view, &folder, name, false);
    }
    let file = one_of_several(view, &folder, name);
    let _held = file.map(|_| view.access.walks.hold_alone());
    let unlink = |dir: &BranchDir| fs::unlinkat(&dir.fd, name, AtFlags::empty());
    remove(view, &folder, name, false, unlink)?;
    if let Some(id) = file {
        view.access.note_gone(id, parent, name);
    }
    Ok(())
}

/// Returns the file of this name if the file has several names and a policy checks them.
fn one_of_several(view: &View, folder: &Folder, name: &CStr) -> Option<InodeId> {
    if !view.access.is_enforced() {
        return None;
    }
    let stat = view.folders.find(folder, name).ok()?.1;
    view.files.known(&stat).filter(|_| view.access.is_checked_by_lookup(&stat))
}

pub(super) fn rmdir(cx: &mut Context<'_>, name: &CStr) -> Result<(), Errno> {
    let parent = cx.inode();
    let view = cx.view;
    let folder = view.folders.folder(parent)?;
    if view.folders.upper().is_some() {
        return layered_names::remove(view, &folder, name, true);
    }
    remove(view, &folder, name, true, |dir| {
        let remove = || fs::unlinkat(&dir.fd, name, AtFlags::REMOVEDIR);
        view.files.keeping_folder(dir.fd.as_fd(), name, remove)
    })
}

fn remove(
    view: &View,
    folder: &Folder,
    name: &CStr,
    of_folder: bool,
    remove: impl Fn(&BranchDir) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let _names = view.moves.share_names();
    let dirs = view.folders.all_with(folder, name)?;
    dirs.iter().try_for_each(|dir| view.files.roots.check_writable(dir.branch))?;
    if dirs.len() > 1 {
        several_sources::check_removal(&dirs, name, of_folder)?;
    }
    // A later source may have a file of the other type under the name, which the first source hides. That file must not
    // appear.
    let flags_of_other = if of_folder { AtFlags::empty() } else { AtFlags::REMOVEDIR };
    let removed = dirs.iter().rev().try_for_each(|dir| match remove(dir) {
        removed if dir.branch == dirs[0].branch => removed,
        Err(Errno::NOTDIR | Errno::ISDIR) => fs::unlinkat(&dir.fd, name, flags_of_other),
        Err(Errno::NOENT) => Ok(()),
        removed => removed,
    });
    view.folders.note_change(folder.id, name);
    removed
}

/// Renames in every source that has the old name. If one of them lacks the new folder, the folder is created there.
pub(super) fn rename(
    cx: &mut Context<'_>,
    name: &CStr,
    (new_parent, new_name): (InodeId, &CStr),
    flags: u32,
) -> Result<(), Errno> {
    let parent = cx.inode();
    let view = cx.view;
    if view.folders.upper().is_some() {
        return rename_in_upper(view, (parent, name), (new_parent, new_name), flags);
    }
    let _names = view.moves.share_names();
    let (folder, new_folder) = (view.folders.folder(parent)?, view.folders.folder(new_parent)?);
    let flags = RenameFlags::from_bits_retain(flags);
    let begun = view.memory.begun_rename(cx.request.unique);
    if let Some(begun) = begun {
        return finish_rename(view, (&folder, name), (&new_folder, new_name), (flags, begun));
    }
    let from = view.folders.all_with(&folder, name)?;
    from.iter().try_for_each(|dir| view.files.roots.check_writable(dir.branch))?;
    let to: Result<Vec<_>, _> =
        from.iter().map(|dir| dir_beside(view, &new_folder, dir.branch)).collect();
    let to = to?;
    // The new folder may have another part now.
    let new_folder = view.folders.folder(new_parent)?;
    let other_targets = other_targets(view, (&from, name), (&new_folder, new_name), flags)?;
    if from.len() > 1 || !other_targets.is_empty() {
        several_sources::check_rename((&from, name), (&to, new_name), flags)?;
        let shown = other_targets.first().map(|dir| stat_name(&dir.fd, new_name)).transpose()?;
        several_sources::check_removal(
            &other_targets,
            new_name,
            shown.is_some_and(|it| is_folder(&it)),
        )?;
    }
    let replaced = one_of_several(view, &new_folder, new_name);
    // An exchange that is made twice is undone, and a whiteout has the old name.
    if (flags - RenameFlags::NOREPLACE).is_empty() {
        view.memory.note_rename(cx.request.unique, bits_of(&from));
    }
    let renamed = several_sources::rename_all((&from, name), (&to, new_name), |from, to| {
        rename_at(view, (from, name), (to, new_name), flags)
    });
    if renamed.is_ok() {
        other_targets.iter().try_for_each(|dir| remove_replaced(view, dir, new_name))?;
    }
    view.folders.note_change(parent, name);
    view.folders.note_change(new_parent, new_name);
    renamed?;
    let moved = note_name(view, new_parent, to[0].fd.as_fd(), new_name);
    if let Some(id) = moved {
        view.access.note_gone(id, parent, name);
    }
    if let Some(id) = replaced.filter(|_| replaced != moved) {
        view.access.note_gone(id, new_parent, new_name);
    }
    if flags.contains(RenameFlags::EXCHANGE) {
        note_name(view, parent, from[0].fd.as_fd(), name);
    }
    Ok(())
}

/// Finishes a rename that the previous worker has begun in these branches, one bit each. Where the old name is gone,
/// the file was renamed. All checks were made before.
fn finish_rename(
    view: &View,
    (folder, name): (&Folder, &CStr),
    (new_folder, new_name): (&Folder, &CStr),
    (flags, begun): (RenameFlags, u64),
) -> Result<(), Errno> {
    let is_begun = |dir: &BranchDir| bit(dir.branch) & begun != 0;
    let has = |dir: &BranchDir, name: &CStr| stat_name(&dir.fd, name).is_ok();
    let dirs = view.folders.dirs(folder)?;
    let from: Vec<_> = dirs.into_iter().filter(|dir| is_begun(dir) && has(dir, name)).collect();
    let to: Result<Vec<_>, _> =
        from.iter().map(|dir| view.folders.dir_in(new_folder, dir.branch)).collect();
    let renamed = several_sources::rename_all((&from, name), (&to?, new_name), |from, to| {
        rename_at(view, (from, name), (to, new_name), flags)
    });
    let new_dirs = view.folders.dirs(new_folder)?;
    let removed = renamed.and_then(|()| {
        let is_replaced =
            |dir: &BranchDir| flags.is_empty() && !is_begun(dir) && has(dir, new_name);
        let others = new_dirs.iter().filter(|dir| is_replaced(dir));
        let mut changeable = others.filter(|dir| {
            let writable = view.files.roots.check_writable(dir.branch);
            writable.and_then(|()| several_sources::check_folder(&dir.fd)).is_ok()
        });
        changeable.try_for_each(|dir| remove_replaced(view, dir, new_name))
    });
    view.folders.note_change(folder.id, name);
    view.folders.note_change(new_folder.id, new_name);
    removed?;
    if let Some(to) = new_dirs.iter().find(|dir| is_begun(dir)) {
        note_name(view, new_folder.id, to.fd.as_fd(), new_name);
    }
    Ok(())
}

/// Returns the bit of a branch. Those with high numbers share one: a file that they have is then renamed as well.
fn bit(branch: u16) -> u64 {
    1 << branch.min(63)
}

fn bits_of(dirs: &[BranchDir]) -> u64 {
    dirs.iter().fold(0, |bits, dir| bits | bit(dir.branch))
}

/// Renames in a source.
fn rename_at(
    view: &View,
    (from, name): (&BranchDir, &CStr),
    (to, new_name): (&BranchDir, &CStr),
    flags: RenameFlags,
) -> Result<(), Errno> {
    view.files.keeping_folder(to.fd.as_fd(), new_name, || {
        match fs::renameat_with(&from.fd, name, &to.fd, new_name, flags) {
            Err(Errno::XDEV) => {
                let from = view.files.on_common_mount(&from.fd)?;
                let to = view.files.on_common_mount(&to.fd)?;
                fs::renameat_with(from, name, to, new_name, flags)
            }
            renamed => renamed,
        }
    })
}

/// Removes a file that a rename in other sources replaces.
fn remove_replaced(view: &View, dir: &BranchDir, name: &CStr) -> Result<(), Errno> {
    view.files.keeping_folder(dir.fd.as_fd(), name, || {
        match fs::unlinkat(&dir.fd, name, AtFlags::empty()) {
            Err(Errno::ISDIR) => fs::unlinkat(&dir.fd, name, AtFlags::REMOVEDIR),
            removed => removed,
        }
    })
}

/// Renames in the upper source.
fn rename_in_upper(
    view: &View,
    (parent, name): (InodeId, &CStr),
    (new_parent, new_name): (InodeId, &CStr),
    flags: u32,
) -> Result<(), Errno> {
    let (folder, new_folder) = (view.folders.folder(parent)?, view.folders.folder(new_parent)?);
    let flags = RenameFlags::from_bits_retain(flags);
    let rename = LayeredRename { view, from: (&folder, name), to: (&new_folder, new_name), flags };
    let (from, to) = rename.run()?;
    note_name(view, new_parent, to.fd.as_fd(), new_name);
    if flags.contains(RenameFlags::EXCHANGE) {
        note_name(view, parent, from.fd.as_fd(), name);
    }
    Ok(())
}

/// Returns the folders, in sources other than those of the renamed file, that contain a file with the new name. A
/// rename replaces these files, too: those of earlier sources would hide the renamed file, and those of later sources
/// would appear once the renamed file is removed.
fn other_targets(
    view: &View,
    (from, name): (&[BranchDir], &CStr),
    (folder, new_name): (&Folder, &CStr),
    flags: RenameFlags,
) -> Result<Vec<BranchDir>, Errno> {
    if folder.merged().is_none() {
        return Ok(Vec::new());
    }
    let (dir, replaced) = match view.folders.find(folder, new_name) {
        Err(Errno::NOENT) => return Ok(Vec::new()),
        found => found?,
    };
    if flags.contains(RenameFlags::NOREPLACE) {
        return Err(Errno::EXIST);
    }
    if flags.contains(RenameFlags::EXCHANGE) {
        let is_same_source = from.len() == 1 && dir.branch == from[0].branch;
        return if is_same_source { Ok(Vec::new()) } else { Err(Errno::XDEV) };
    }
    match (is_folder(&stat_name(&from[0].fd, name)?), is_folder(&replaced)) {
        (true, false) => return Err(Errno::NOTDIR),
        (false, true) => return Err(Errno::ISDIR),
        _ => {}
    }
    let before = parts_before(folder, from[0].branch);
    let mut other_targets = Vec::new();
    for dir in view.folders.all_with(folder, new_name)? {
        if from.iter().any(|from| from.branch == dir.branch) {
            continue;
        }
        let is_before = before.contains(&dir.branch);
        let writable = view.files.roots.check_writable(dir.branch);
        match writable.and_then(|()| several_sources::check_folder(&dir.fd)) {
            // The file stays hidden, as a read-only source cannot be changed.
            Err(Errno::ROFS) if !is_before => {}
            checked => checked.map(|()| other_targets.push(dir))?,
        }
    }
    Ok(other_targets)
}

/// Returns the branches of a folder that take precedence over this one.
fn parts_before(folder: &Folder, branch: u16) -> Vec<u16> {
    let parts = folder.merged().into_iter().flat_map(|merged| &merged.parts);
    parts.map(|part| part.branch).take_while(|&before| before != branch).collect()
}

/// Remembers the inode's new name, if names are kept, and returns the inode's id.
fn note_name(view: &View, parent: InodeId, folder: BorrowedFd<'_>, name: &CStr) -> Option<InodeId> {
    view.files.names.as_ref()?;
    let stat = stat_name(folder, name).ok()?;
    let id = view.files.known(&stat)?;
    if is_folder(&stat) && view.folders.branches().is_some() {
        view.folders.note_place(id, parent, name.to_bytes());
    }
    view.access.note_found(id, parent, name.to_bytes(), &stat);
    Some(id)
}

pub(super) fn readlink(cx: &mut Context<'_>) -> Result<(), Errno> {
    let id = cx.inode();
    let view = cx.view;
    let target = fs::readlinkat(view.files.path_fd(id)?, c"", Vec::new())?;
    cx.reply.put_bytes(target.as_bytes());
    Ok(())
}
