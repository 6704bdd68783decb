//! Copies files and folders to the upper source before they are changed.
//!
//! A copy is made in the work folder, and gets its name once it is complete. So at each moment, also after a kill, the
//! name leads to the whole file of the lower source or to the whole copy.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, RenameFlags, Statx};
use rustix::io::Errno;

use super::copying::{copy_attributes_where, copy_data, copy_flags, link, new_file, restore_times};
use super::folder::{BranchDir, Folder};
use super::stat::{FILE_TYPE, LINK, REGULAR, handle_of, identity, is_folder, stat_fd, stat_name};
use super::state::View;
use crate::inodes::InodeId;
use crate::upper::{UPPER, Upper};

const PATH: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Returns the descriptors of the inode that a change concerns. With an upper source, it is that of the copy there.
/// `size` is the file's new size, if the change sets it.
pub(super) fn fds_to_change(
    view: &View,
    id: InodeId,
    size: Option<u64>,
) -> Result<Vec<Arc<OwnedFd>>, Errno> {
    if view.folders.upper().is_none() {
        return view.folders.fds_to_change(id);
    }
    let inode = view.files.inodes.get(id)?;
    if inode.identity.is_folder() {
        return Ok(vec![upper_dir(view, id)?.fd]);
    }
    copy_up(view, id, size)?;
    Ok(vec![view.files.path_fd(id)?])
}

/// Makes the inode one of the upper source: a file of a lower one is copied. No more than `size` bytes are copied.
pub(super) fn copy_up(view: &View, id: InodeId, size: Option<u64>) -> Result<(), Errno> {
    let Some(upper) = view.folders.upper() else { return Ok(()) };
    if view.files.inodes.get(id)?.branch == UPPER {
        return Ok(());
    }
    let _held = view.moves.hold_file(id);
    if view.files.inodes.get(id)?.branch == UPPER {
        return Ok(());
    }
    let from = view.files.path_fd(id)?;
    let stat = stat_fd(&*from)?;
    let known = view.files.names.as_ref().and_then(|names| names.get(id));
    let (parent, name) = known.ok_or(Errno::STALE)?;
    let place = upper_dir(view, parent).and_then(|dir| {
        let folder = view.folders.folder(parent)?;
        let (found, shown) = view.folders.find(&folder, &name)?;
        let is_it = found.branch != UPPER && is_same(&shown, &stat);
        if is_it { Ok((dir, folder)) } else { Err(Errno::NOENT) }
    });
    let copied = match place {
        Ok((dir, folder)) => {
            let source = open_data(view, id, &stat)?;
            let copied = copy_named(upper, (&from, source.as_ref()), &stat, size, (&dir, &name))?;
            view.folders.note_change(folder.id, &name);
            copied
        }
        // The file was removed, or another one has its name, and programs still have it open.
        Err(Errno::NOENT) => {
            let source = open_data(view, id, &stat)?;
            nameless_copy(upper, (&from, source.as_ref()), &stat, size)?
        }
        Err(errno) => return Err(errno),
    };
    switch(view, id, copied)
}

fn is_same(one: &Statx, other: &Statx) -> bool {
    let number = |stat: &Statx| (stat.stx_ino, stat.stx_dev_major, stat.stx_dev_minor);
    number(one) == number(other)
}

/// Opens a regular file for reading.
fn open_data(view: &View, id: InodeId, stat: &Statx) -> Result<Option<OwnedFd>, Errno> {
    if u32::from(stat.stx_mode) & FILE_TYPE != REGULAR {
        return Ok(None);
    }
    let file = view.files.open_without_atime(id)?;
    if let Some(upper) = view.folders.upper() {
        upper.check_complete(&file)?;
    }
    Ok(Some(file))
}

/// Copies a file of any type but a folder, and gives the copy this name in the upper source.
fn copy_named(
    upper: &Upper,
    (from, data): (&OwnedFd, Option<&OwnedFd>),
    stat: &Statx,
    size: Option<u64>,
    (dir, name): (&BranchDir, &CStr),
) -> Result<OwnedFd, Errno> {
    let before = stat_fd(&dir.fd)?;
    if let Some(data) = data {
        let made = new_file(upper.work(), Mode::RUSR | Mode::WUSR)?;
        fill(upper, data, made.fd(), stat, size)?;
        match made.link(&dir.fd, name) {
            Err(Errno::XDEV) => link(made.fd(), &dir.fd, name),
            linked => linked,
        }
        .map_err(changed_meanwhile)?;
        made.finish();
    } else {
        let temporary = upper.temporary();
        make_special(upper, from, &temporary, stat)?;
        let flags = RenameFlags::NOREPLACE;
        fs::renameat_with(upper.work(), temporary.as_c_str(), &dir.fd, name, flags)
            .map_err(changed_meanwhile)?;
    }
    // The folder has the same names as before. If that fails, only its times are newer.
    let _ = restore_times(&dir.fd, &before);
    fs::openat(&dir.fd, name, PATH, Mode::empty())
}

/// If the name exists in the upper source by now, the kernel looks it up again.
fn changed_meanwhile(errno: Errno) -> Errno {
    if errno == Errno::EXIST { Errno::STALE } else { errno }
}

/// Copies data and attributes to a new file.
fn fill(
    upper: &Upper,
    from: &OwnedFd,
    to: &OwnedFd,
    stat: &Statx,
    size: Option<u64>,
) -> Result<(), Errno> {
    let size = size.map_or(stat.stx_size, |size| size.min(stat.stx_size));
    copy_flags(from, to);
    copy_data(from, to, size, &|| false)?;
    copy_attributes_where(from, to, stat, |name| !upper.is_mark(name))?;
    if size > 0 { fs::fsync(to) } else { Ok(()) }
}

/// Returns a copy without a name.
fn nameless_copy(
    upper: &Upper,
    (from, data): (&OwnedFd, Option<&OwnedFd>),
    stat: &Statx,
    size: Option<u64>,
) -> Result<OwnedFd, Errno> {
    let Some(data) = data else {
        let name = upper.temporary();
        make_special(upper, from, &name, stat)?;
        let made = fs::openat(upper.work(), name.as_c_str(), PATH, Mode::empty());
        fs::unlinkat(upper.work(), name.as_c_str(), AtFlags::empty())?;
        return made;
    };
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let made = fs::openat(upper.work(), c".", flags, Mode::RUSR | Mode::WUSR)?;
    fill(upper, data, &made, stat, size)?;
    Ok(made)
}

/// Makes a copy of a symbolic link, device, pipe or socket in the work folder.
fn make_special(upper: &Upper, from: &OwnedFd, name: &CStr, stat: &Statx) -> Result<(), Errno> {
    let mode = u32::from(stat.stx_mode);
    if mode & FILE_TYPE == LINK {
        let target = fs::readlinkat(from, c"", Vec::new())?;
        fs::symlinkat(target, upper.work(), name)?;
    } else {
        let device = fs::makedev(stat.stx_rdev_major, stat.stx_rdev_minor);
        let kind = FileType::from_raw_mode(mode);
        fs::mknodat(upper.work(), name, kind, Mode::RUSR | Mode::WUSR, device)?;
    }
    let made = fs::openat(upper.work(), name, PATH, Mode::empty())?;
    copy_attributes_where(from, &made, stat, |name| !upper.is_mark(name)).inspect_err(|_| {
        let _ = fs::unlinkat(upper.work(), name, AtFlags::empty());
    })
}

/// Makes the file of the upper source the inode's. Where the kernel moves the data of an open, that open goes on with
/// the data of the former file.
fn switch(view: &View, id: InodeId, copied: OwnedFd) -> Result<(), Errno> {
    let copied = Arc::new(copied);
    let stat = stat_fd(&*copied)?;
    let volume = view.files.volumes.of(&stat, || Err(Errno::XDEV))?;
    let handle = volume.has_handles.then(|| handle_of(copied.as_fd())).transpose()?;
    let files = &view.files;
    let identity = identity(volume.index, &stat);
    let is_nameless = stat.stx_nlink == 0;
    let keep = || {
        files.forget_descriptors(id);
        files.path_fds.put(id, Arc::clone(&copied));
        if is_nameless || files.pins.get(id).is_some() {
            files.pins.hold(id, Arc::clone(&copied));
        }
    };
    view.backing.drop_idle(id);
    match files.inodes.relocate(id, &identity, UPPER, handle.as_ref(), keep)? {
        Some(unused) => view.connection.close_backing(unused),
        None => {
            view.moves.note_gone(id);
            files.inodes.follow(id, &identity, UPPER, handle.as_ref());
            keep();
        }
    }
    view.connection.invalidate_attributes(id);
    Ok(())
}

/// Returns the folder of the upper source, which is made if necessary, as are the folders above.
pub(super) fn upper_dir(view: &View, id: InodeId) -> Result<BranchDir, Errno> {
    let upper = view.folders.upper().ok_or(Errno::INVAL)?;
    let in_upper = || view.folders.dir_in(&view.folders.folder(id)?, UPPER);
    match in_upper() {
        Err(Errno::XDEV) => {}
        dir => return dir,
    }
    let known = view.files.names.as_ref().and_then(|names| names.get(id));
    let (parent, name) = known.ok_or(Errno::STALE)?;
    let above = upper_dir(view, parent)?;
    let held = upper.hold_folders();
    match in_upper() {
        Err(Errno::XDEV) => {}
        dir => return dir,
    }
    let parent_folder = view.folders.folder(parent)?;
    // A folder that was removed must not appear again.
    let layers = view.folders.layers(&parent_folder, &name)?;
    let lower = layers.first().ok_or(Errno::NOENT)?;
    let stat = stat_fd(&lower.fd)?;
    if !is_folder(&stat) || !is_same(&stat, &stat_fd(&*view.files.path_fd(id)?)?) {
        return Err(Errno::NOENT);
    }
    let before = stat_fd(&above.fd)?;
    let staged = StagedFolder::like(upper, &lower.fd, &stat)?;
    staged.place(&above.fd, &name)?;
    let _ = restore_times(&above.fd, &before);
    let made = fs::openat(&above.fd, name.as_c_str(), PATH | OFlags::DIRECTORY, Mode::empty())?;
    if let Some(branches) = view.folders.branches() {
        branches.drop_folder(id);
    }
    view.folders.note_change(parent_folder.id, &name);
    switch(view, id, made)?;
    drop(held);
    in_upper()
}

/// A folder in the work folder, which is removed unless it gets its place.
pub(super) struct StagedFolder<'a> {
    upper: &'a Upper,
    name: CString,
    fd: Arc<OwnedFd>,
}

impl<'a> StagedFolder<'a> {
    /// Makes a folder with the attributes of another one.
    pub(super) fn like(upper: &'a Upper, other: &OwnedFd, stat: &Statx) -> Result<Self, Errno> {
        let name = upper.temporary();
        fs::mkdirat(upper.work(), name.as_c_str(), Mode::RWXU)?;
        let flags = PATH | OFlags::DIRECTORY;
        let fd = Arc::new(fs::openat(upper.work(), name.as_c_str(), flags, Mode::empty())?);
        let staged = Self { upper, name, fd };
        copy_attributes_where(other, &staged.fd, stat, |name| !upper.is_mark(name))?;
        Ok(staged)
    }

    /// Makes a folder for new files, which inherit from it what they would inherit from `dir`.
    pub(super) fn beside(upper: &'a Upper, dir: &BranchDir) -> Result<Self, Errno> {
        Self::like(upper, &dir.fd, &stat_fd(&dir.fd)?)
    }

    pub(super) fn dir(&self) -> BranchDir {
        BranchDir { branch: UPPER, fd: Arc::clone(&self.fd) }
    }

    /// Gives the folder its place.
    fn place(&self, folder: &OwnedFd, name: &CStr) -> Result<(), Errno> {
        let flags = RenameFlags::NOREPLACE;
        fs::renameat_with(self.upper.work(), self.name.as_c_str(), folder, name, flags)
            .map_err(changed_meanwhile)
    }

    /// Replaces a folder that is empty in the view by this one, which hides the folders below.
    pub(super) fn replace(&self, folder: &OwnedFd, name: &CStr) -> Result<(), Errno> {
        self.upper.set_opaque(&self.fd)?;
        let flags = RenameFlags::EXCHANGE;
        fs::renameat_with(self.upper.work(), self.name.as_c_str(), folder, name, flags)
    }

    /// Moves a new file from this folder to the place of a whiteout.
    pub(super) fn cover(&self, name: &CStr, folder: &OwnedFd) -> Result<(), Errno> {
        if !is_folder(&stat_name(&self.fd, name)?) {
            return fs::renameat_with(&self.fd, name, folder, name, RenameFlags::empty());
        }
        self.upper.set_opaque(&fs::openat(&self.fd, name, PATH, Mode::empty())?)?;
        fs::renameat_with(&self.fd, name, folder, name, RenameFlags::EXCHANGE)
    }
}

impl Drop for StagedFolder<'_> {
    fn drop(&mut self) {
        discard(self.upper, &self.name);
    }
}

/// Removes a file or folder from the work folder. What cannot be removed is left to the next mount.
pub(super) fn discard(upper: &Upper, name: &CStr) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if let Err(Errno::ISDIR) = fs::unlinkat(upper.work(), name, AtFlags::empty()) {
        let _ = fs::openat(upper.work(), name, flags, Mode::empty())
            .and_then(|folder| crate::upper::clear(&folder))
            .and_then(|()| fs::unlinkat(upper.work(), name, AtFlags::REMOVEDIR));
    }
}

/// Whether the upper source has a whiteout of this name.
pub(super) fn has_whiteout(upper: &Upper, dir: &BranchDir, name: &CStr) -> bool {
    stat_name(&dir.fd, name).is_ok_and(|stat| upper.is_whiteout(&dir.fd, name, &stat))
}

/// Copies the file of this name, unless the upper source has it.
pub(super) fn copy_up_name(
    view: &View,
    folder: &Folder,
    name: &CStr,
    (dir, stat): (&BranchDir, &Statx),
) -> Result<(), Errno> {
    if dir.branch == UPPER {
        return Ok(());
    }
    let upper = view.folders.upper().ok_or(Errno::INVAL)?;
    if let Some(id) = view.known_at(folder.id, (dir, name), stat) {
        return copy_up(view, id, None);
    }
    let place = upper_dir(view, folder.id)?;
    let from = fs::openat(&dir.fd, name, PATH, Mode::empty())?;
    let data = match u32::from(stat.stx_mode) & FILE_TYPE {
        REGULAR => {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            Some(fs::openat(&dir.fd, name, flags, Mode::empty())?)
        }
        _ => None,
    };
    copy_named(upper, (&from, data.as_ref()), stat, None, (&place, name))?;
    view.folders.note_change(folder.id, name);
    Ok(())
}
