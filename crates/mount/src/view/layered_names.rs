//! Makes, removes and renames names in the upper source, such that those of the sources below are hidden.
//!
//! Each change takes effect by a single system call on the name. What overlayfs would do is done, so that a layer can
//! be used by either.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{self, AtFlags, Mode, OFlags, RenameFlags, Statx};
use rustix::io::Errno;

use super::copy_up::{StagedFolder, copy_up_name, discard, has_whiteout, upper_dir};
use super::entries::each_entry;
use super::folder::{BranchDir, Folder};
use super::stat::{is_folder, stat_name};
use super::state::View;
use crate::upper::{UPPER, Upper};

/// The size of the buffer for entries of a folder that should be empty.
const ENTRIES_BYTES: usize = 32 * 1024;

/// Runs `make`, which makes a file of this name in the folder that it is given. A new file that replaces a whiteout is
/// made elsewhere, and takes the whiteout's place.
pub(super) fn make_named<T>(
    view: &View,
    folder: &Folder,
    name: &CStr,
    mut make: impl FnMut(&BranchDir) -> Result<T, Errno>,
) -> Result<(BranchDir, T), Errno> {
    let upper = view.folders.upper().ok_or(Errno::INVAL)?;
    let dir = upper_dir(view, folder.id)?;
    let _names = view.moves.share_names();
    if name.is_empty() || !has_whiteout(upper, &dir, name) {
        let made = make(&dir)?;
        return Ok((dir, made));
    }
    let staged = StagedFolder::beside(upper, &dir)?;
    let made = make(&staged.dir())?;
    staged.cover(name, &dir.fd)?;
    Ok((dir, made))
}

/// Removes a name.
pub(super) fn remove(
    view: &View,
    folder: &Folder,
    name: &CStr,
    of_folder: bool,
) -> Result<(), Errno> {
    let upper = view.folders.upper().ok_or(Errno::INVAL)?;
    let (found, stat) = view.folders.find(folder, name)?;
    match (of_folder, is_folder(&stat)) {
        (true, false) => return Err(Errno::NOTDIR),
        (false, true) => return Err(Errno::ISDIR),
        _ => {}
    }
    let below = !view.folders.lower_layers(folder, name)?.is_empty();
    let dir = if below { upper_dir(view, folder.id)? } else { found.clone() };
    // The folder may have another part now.
    let folder = &view.folders.folder(folder.id)?;
    let _names = view.moves.hold_names();
    if of_folder {
        check_empty(view, folder, name)?;
    }
    let removed = view.files.keeping_folder(found.fd.as_fd(), name, || match below {
        true => hide(upper, &dir, name),
        false => remove_from(upper, &dir, name, of_folder),
    });
    view.folders.note_change(folder.id, name);
    removed
}

/// Puts a whiteout in the place of a name.
fn hide(upper: &Upper, dir: &BranchDir, name: &CStr) -> Result<(), Errno> {
    let present = match stat_name(&dir.fd, name) {
        Err(Errno::NOENT) => return upper.make_whiteout(&dir.fd, name),
        present => present?,
    };
    if upper.is_whiteout(&dir.fd, name, &present) {
        return Ok(());
    }
    let temporary = upper.temporary();
    upper.make_whiteout(upper.work(), &temporary)?;
    let flags = if is_folder(&present) { RenameFlags::EXCHANGE } else { RenameFlags::empty() };
    let hidden = rename_at(upper.work(), &temporary, &dir.fd, name, flags);
    if hidden.is_err() || is_folder(&present) {
        discard(upper, &temporary);
    }
    hidden
}

/// Removes a name that no source below has. A folder may contain whiteouts.
fn remove_from(upper: &Upper, dir: &BranchDir, name: &CStr, of_folder: bool) -> Result<(), Errno> {
    if !of_folder {
        return fs::unlinkat(&dir.fd, name, AtFlags::empty());
    }
    match fs::unlinkat(&dir.fd, name, AtFlags::REMOVEDIR) {
        Err(Errno::NOTEMPTY | Errno::EXIST) => {
            let temporary = upper.temporary();
            let flags = RenameFlags::NOREPLACE;
            fs::renameat_with(&dir.fd, name, upper.work(), temporary.as_c_str(), flags)?;
            discard(upper, &temporary);
            Ok(())
        }
        removed => removed,
    }
}

/// Fails unless the folder of this name has no names in the view.
fn check_empty(view: &View, folder: &Folder, name: &CStr) -> Result<(), Errno> {
    let layers = view.folders.layers(folder, name)?;
    if view.folders.is_empty(&layers)? { Ok(()) } else { Err(Errno::NOTEMPTY) }
}

impl super::folders::Folders {
    /// Whether the folder that is merged from these layers has no names.
    fn is_empty(&self, layers: &[BranchDir]) -> Result<bool, Errno> {
        let sources = self.merged_sources.as_ref().ok_or(Errno::INVAL)?;
        let upper = self.upper().ok_or(Errno::INVAL)?;
        let mut names = Vec::new();
        for layer in layers {
            each_entry(&layer.fd, 0, ENTRIES_BYTES, |entry| {
                if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                    names.push(entry.file_name().to_owned());
                }
                Ok(true)
            })?;
        }
        names.sort_unstable();
        names.dedup();
        for name in names {
            if !sources.layers(upper, layers, &name)?.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// A rename, with the files that it concerns.
pub(super) struct LayeredRename<'a> {
    pub(super) view: &'a View,
    pub(super) from: (&'a Folder, &'a CStr),
    pub(super) to: (&'a Folder, &'a CStr),
    pub(super) flags: RenameFlags,
}

impl LayeredRename<'_> {
    /// Renames within the upper source. A folder that has parts below cannot be renamed (`EXDEV`), as on overlayfs
    /// without `redirect_dir`. Returns the folders of both names.
    pub(super) fn run(&self) -> Result<(BranchDir, BranchDir), Errno> {
        let (view, (folder, name), (new_folder, new_name)) = (self.view, self.from, self.to);
        let is_exchange = self.flags.contains(RenameFlags::EXCHANGE);
        let (found, stat) = view.folders.find(folder, name)?;
        let target = match view.folders.find(new_folder, new_name) {
            Err(Errno::NOENT) if is_exchange => return Err(Errno::NOENT),
            Err(Errno::NOENT) => None,
            target => Some(target?),
        };
        self.check(&stat, target.as_ref().map(|(_, stat)| stat))?;
        if !is_folder(&stat) {
            copy_up_name(view, folder, name, (&found, &stat))?;
        }
        if let Some((dir, stat)) =
            target.as_ref().filter(|(_, stat)| is_exchange && !is_folder(stat))
        {
            copy_up_name(view, new_folder, new_name, (dir, stat))?;
        }
        let from = upper_dir(view, folder.id)?;
        let to = upper_dir(view, new_folder.id)?;
        let (folder, new_folder) =
            (&view.folders.folder(folder.id)?, &view.folders.folder(new_folder.id)?);
        let _names = view.moves.hold_names();
        let is_below = !view.folders.lower_layers(folder, name)?.is_empty();
        let is_new_below = !view.folders.lower_layers(new_folder, new_name)?.is_empty();
        let upper = view.folders.upper().ok_or(Errno::INVAL)?;
        if is_folder(&stat) && is_new_below {
            set_opaque(upper, &from, name)?;
        }
        let renamed = match &target {
            Some((_, other)) if is_exchange => {
                if is_folder(other) && is_below {
                    set_opaque(upper, &to, new_name)?;
                }
                rename_at(&from.fd, name, &to.fd, new_name, RenameFlags::EXCHANGE)
            }
            target => {
                let is_over_folder = target.as_ref().is_some_and(|(_, stat)| is_folder(stat));
                if is_over_folder {
                    check_empty(view, new_folder, new_name)?;
                }
                view.files.keeping_folder(to.fd.as_fd(), new_name, || {
                    move_over(upper, (&from, name), (&to, new_name), is_folder(&stat), is_below)
                })
            }
        };
        view.folders.note_change(folder.id, name);
        view.folders.note_change(new_folder.id, new_name);
        renamed.map(|()| (from, to))
    }

    fn check(&self, stat: &Statx, target: Option<&Statx>) -> Result<(), Errno> {
        let is_exchange = self.flags.contains(RenameFlags::EXCHANGE);
        if self.flags.contains(RenameFlags::WHITEOUT) {
            return Err(Errno::INVAL);
        }
        if self.flags.contains(RenameFlags::NOREPLACE) && target.is_some() {
            return Err(Errno::EXIST);
        }
        if is_folder(stat) {
            self.check_pure(self.from)?;
        }
        match target {
            Some(target) if is_exchange && is_folder(target) => self.check_pure(self.to),
            Some(target) if !is_exchange && is_folder(stat) && !is_folder(target) => {
                Err(Errno::NOTDIR)
            }
            Some(target) if !is_exchange && !is_folder(stat) && is_folder(target) => {
                Err(Errno::ISDIR)
            }
            Some(target) if !is_exchange && is_folder(target) => {
                check_empty(self.view, self.to.0, self.to.1)
            }
            _ => Ok(()),
        }
    }

    /// Fails unless the folder of this name is one of the upper source alone.
    fn check_pure(&self, (folder, name): (&Folder, &CStr)) -> Result<(), Errno> {
        let layers = self.view.folders.layers(folder, name)?;
        if layers.iter().all(|layer| layer.branch == UPPER) { Ok(()) } else { Err(Errno::XDEV) }
    }
}

/// Moves a file of the upper source to another name, which may have a file that is replaced. If sources below have the
/// former name (`is_below`), a whiteout takes its place.
fn move_over(
    upper: &Upper,
    (from, name): (&BranchDir, &CStr),
    (to, new_name): (&BranchDir, &CStr),
    of_folder: bool,
    is_below: bool,
) -> Result<(), Errno> {
    let present = match stat_name(&to.fd, new_name) {
        Err(Errno::NOENT) => None,
        present => Some(present?),
    };
    let is_whiteout =
        present.as_ref().is_some_and(|stat| upper.is_whiteout(&to.fd, new_name, stat));
    if is_whiteout && (is_below || of_folder) {
        rename_at(&from.fd, name, &to.fd, new_name, RenameFlags::EXCHANGE)?;
        // Otherwise the whiteout hides the former name.
        return if is_below { Ok(()) } else { fs::unlinkat(&from.fd, name, AtFlags::empty()) };
    }
    if let Some(present) = present.filter(is_folder) {
        // The folder may contain whiteouts.
        let folder = fs::openat(&to.fd, new_name, PATH, Mode::empty())?;
        StagedFolder::like(upper, &folder, &present)?.replace(&to.fd, new_name)?;
        if of_folder {
            set_opaque(upper, from, name)?;
        }
    }
    let flags = if is_below { RenameFlags::WHITEOUT } else { RenameFlags::empty() };
    rename_at(&from.fd, name, &to.fd, new_name, flags)
}

const PATH: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn set_opaque(upper: &Upper, dir: &BranchDir, name: &CStr) -> Result<(), Errno> {
    upper.set_opaque(&fs::openat(&dir.fd, name, PATH, Mode::empty())?)
}

fn rename_at(
    from: &OwnedFd,
    name: &CStr,
    to: &OwnedFd,
    new_name: &CStr,
    flags: RenameFlags,
) -> Result<(), Errno> {
    fs::renameat_with(from, name, to, new_name, flags)
}
