//! Names that move or go.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{self, AtFlags, RenameFlags};
use rustix::io::Errno;

use super::context::Context;
use super::folder::{BranchDir, Folder};
use super::stat::{FILE_TYPE, FOLDER, stat_name};
use super::state::View;
use crate::inodes::InodeId;

/// Removes the name from every source that has it, the first one last: what is seen until then is
/// the whole.
pub(super) fn unlink(cx: &mut Context<'_>, name: &CStr) -> Result<(), Errno> {
    let parent = cx.inode();
    let view = cx.view;
    let folder = view.folders.folder(parent)?;
    let file = one_of_several(view, &folder, name);
    let _held = file.map(|_| view.access.walks.hold_alone());
    let unlink = |spot: &BranchDir| fs::unlinkat(&spot.place, name, AtFlags::empty());
    remove(view, &folder, name, unlink)?;
    if let Some(id) = file {
        view.access.note_gone(id, parent, name);
    }
    Ok(())
}

/// The file that this name is one of several of, if the others are judged, too.
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
    remove(view, &folder, name, |spot| {
        let remove = || fs::unlinkat(&spot.place, name, AtFlags::REMOVEDIR);
        view.files.keeping_folder(spot.place.as_fd(), name, remove)
    })
}

fn remove(
    view: &View,
    folder: &Folder,
    name: &CStr,
    remove: impl Fn(&BranchDir) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let spots = view.folders.all_with(folder, name)?;
    let removed = spots.iter().rev().try_for_each(|spot| match remove(spot) {
        // A source that is hidden has something else there, which stays.
        Err(Errno::NOTDIR | Errno::ISDIR) if spot.branch != spots[0].branch => Ok(()),
        removed => removed,
    });
    view.folders.note_change(folder, name);
    removed
}

/// Renames in every source that has the old name. If one of them does not have the new folder, that
/// is another file system for whoever asks.
pub(super) fn rename(
    cx: &mut Context<'_>,
    name: &CStr,
    (new_parent, new_name): (InodeId, &CStr),
    flags: u32,
) -> Result<(), Errno> {
    let parent = cx.inode();
    let view = cx.view;
    let (folder, new_folder) = (view.folders.folder(parent)?, view.folders.folder(new_parent)?);
    let flags = RenameFlags::from_bits_retain(flags);
    let from = view.folders.all_with(&folder, name)?;
    let to: Result<Vec<_>, _> =
        from.iter().map(|spot| view.folders.spot_in(&new_folder, spot.branch)).collect();
    let to = to?;
    let in_the_way = in_the_way(view, &new_folder, new_name, &from, flags)?;
    let replaced = one_of_several(view, &new_folder, new_name);
    let renamed = from.iter().zip(&to).rev().try_for_each(|(from, to)| {
        view.files.keeping_folder(to.place.as_fd(), new_name, || {
            fs::renameat_with(&from.place, name, &to.place, new_name, flags)
        })
    });
    if renamed.is_ok() {
        // What would hide the new name.
        for spot in in_the_way {
            fs::unlinkat(&spot.place, new_name, AtFlags::empty())?;
        }
    }
    view.folders.note_change(&folder, name);
    view.folders.note_change(&new_folder, new_name);
    renamed?;
    let moved = note_name(view, new_parent, to[0].place.as_fd(), new_name);
    if let Some(id) = moved {
        view.access.note_gone(id, parent, name);
    }
    if let Some(id) = replaced.filter(|_| replaced != moved) {
        view.access.note_gone(id, new_parent, new_name);
    }
    if flags.contains(RenameFlags::EXCHANGE) {
        note_name(view, parent, from[0].place.as_fd(), name);
    }
    Ok(())
}

/// What sources before those of a rename have under its new name.
fn in_the_way(
    view: &View,
    folder: &Folder,
    name: &CStr,
    from: &[BranchDir],
    flags: RenameFlags,
) -> Result<Vec<BranchDir>, Errno> {
    if folder.merged().is_none() {
        return Ok(Vec::new());
    }
    let (spot, stat) = match view.folders.find(folder, name) {
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
    let mut spots = view.folders.all_with(folder, name)?;
    spots.retain(|spot| spot.branch < from[0].branch);
    Ok(spots)
}

/// Remembers the inode's new name, where names are remembered, and says which inode it is.
fn note_name(view: &View, parent: InodeId, folder: BorrowedFd<'_>, name: &CStr) -> Option<InodeId> {
    view.files.names.as_ref()?;
    let stat = stat_name(folder, name).ok()?;
    let id = view.files.known(&stat)?;
    view.access.note_found(id, parent, name.to_bytes(), &stat);
    Some(id)
}

pub(super) fn readlink(cx: &mut Context<'_>) -> Result<(), Errno> {
    let id = cx.inode();
    let view = cx.view;
    let answer = &mut *cx.reply;
    let target = fs::readlinkat(view.files.place(id)?, c"", Vec::new())?;
    answer.put_bytes(target.as_bytes());
    Ok(())
}
