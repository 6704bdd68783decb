//! Changes several sources, such that either all of them make the change or none.
//!
//! Errors that a source would return are checked before the first source is changed: read-only file systems, immutable
//! files, mount points, folders that are not empty. Errors that cannot be predicted, such as a full disk, make the
//! change be undone.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{
    self, AtFlags, Gid, Mode, OFlags, RenameFlags, StatVfsMountFlags, Statx, StatxAttributes,
    Timespec, Timestamps, Uid,
};
use rustix::io::Errno;

use super::entries::each_entry;
use super::folder::BranchDir;
use super::stat::{is_folder, stat_fd, stat_name};
use crate::actor::set_mode_of_copy;

/// Room for one or two names.
const FIRST_ENTRIES_BYTES: usize = 4096;

/// The attributes with which `chattr` forbids changing or removing a file.
const FIXED: StatxAttributes = StatxAttributes::IMMUTABLE.union(StatxAttributes::APPEND);

/// Checks that the name can be removed from all of these folders. The first folder has the file that the view shows.
pub(super) fn check_removal(dirs: &[BranchDir], name: &CStr, of_folder: bool) -> Result<(), Errno> {
    for (index, dir) in dirs.iter().enumerate() {
        check_folder(&dir.fd)?;
        let Some(stat) = existing(dir, name)? else { continue };
        if index == 0 && is_folder(&stat) != of_folder {
            return Err(if of_folder { Errno::NOTDIR } else { Errno::ISDIR });
        }
        check_removable(dir, name, &stat)?;
    }
    Ok(())
}

/// Checks that each source can rename its file. `from` and `to` are the folders in each source.
pub(super) fn check_rename(
    (from, name): (&[BranchDir], &CStr),
    (to, new_name): (&[BranchDir], &CStr),
    flags: RenameFlags,
) -> Result<(), Errno> {
    for (from, to) in from.iter().zip(to) {
        check_folder(&from.fd)?;
        check_folder(&to.fd)?;
        let Some(stat) = existing(from, name)? else { continue };
        check_fixed(&stat)?;
        let Some(replaced) = existing(to, new_name)? else { continue };
        match (is_folder(&stat), is_folder(&replaced)) {
            _ if flags.contains(RenameFlags::NOREPLACE) => return Err(Errno::EXIST),
            (true, false) => return Err(Errno::NOTDIR),
            (false, true) => return Err(Errno::ISDIR),
            _ => check_removable(to, new_name, &replaced)?,
        }
    }
    Ok(())
}

/// Checks that attributes can be changed in all sources. `is_touch` says that the change only sets times to the
/// present.
pub(super) fn check_attributes(fds: &[Arc<OwnedFd>], is_touch: bool) -> Result<(), Errno> {
    for fd in fds {
        check_writable(fd)?;
        let forbidding = if is_touch { StatxAttributes::IMMUTABLE } else { FIXED };
        if stat_fd(fd)?.stx_attributes.intersects(forbidding) {
            return Err(Errno::PERM);
        }
    }
    Ok(())
}

/// Renames in all sources, the first source last. If a rename fails, the preceding renames are reverted; files that
/// they replaced are lost.
pub(super) fn rename_all(
    (from, name): (&[BranchDir], &CStr),
    (to, new_name): (&[BranchDir], &CStr),
    rename: impl Fn(&BranchDir, &BranchDir) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let mut done: Vec<(&BranchDir, &BranchDir)> = Vec::new();
    for (from, to) in from.iter().zip(to).rev() {
        if let Err(errno) = rename(from, to) {
            for (from, to) in done {
                let back = RenameFlags::NOREPLACE;
                // The first error is the one to report.
                let _ = fs::renameat_with(&to.fd, new_name, &from.fd, name, back);
            }
            return Err(errno);
        }
        done.push((from, to));
    }
    Ok(())
}

/// Restores the former owner, mode and times of a file.
pub(super) fn restore_attributes(fd: &OwnedFd, before: &Statx) {
    let owner = (Uid::from_raw(before.stx_uid), Gid::from_raw(before.stx_gid));
    let _ = fs::chownat(fd, c"", Some(owner.0), Some(owner.1), AtFlags::EMPTY_PATH);
    let mode = Mode::from_raw_mode(u32::from(before.stx_mode) & 0o7777);
    let _ = set_mode_of_copy(fd.as_fd(), mode);
    let time =
        |time: fs::StatxTimestamp| Timespec { tv_sec: time.tv_sec, tv_nsec: time.tv_nsec.into() };
    let times = Timestamps {
        last_access: time(before.stx_atime),
        last_modification: time(before.stx_mtime),
    };
    let _ = fs::utimensat(fd, c"", &times, AtFlags::EMPTY_PATH);
}

/// Returns the attributes of the file with this name in the folder, if there is one.
fn existing(dir: &BranchDir, name: &CStr) -> Result<Option<Statx>, Errno> {
    match stat_name(&dir.fd, name) {
        Err(Errno::NOENT) => Ok(None),
        found => found.map(Some),
    }
}

fn check_writable(fd: &OwnedFd) -> Result<(), Errno> {
    let is_read_only = fs::fstatvfs(fd)?.f_flag.contains(StatVfsMountFlags::RDONLY);
    if is_read_only { Err(Errno::ROFS) } else { Ok(()) }
}

/// Checks that names in the folder can be removed.
pub(super) fn check_folder(fd: &OwnedFd) -> Result<(), Errno> {
    check_writable(fd)?;
    if stat_fd(fd)?.stx_attributes.intersects(FIXED) { Err(Errno::PERM) } else { Ok(()) }
}

/// Checks that a file may lose its name.
fn check_fixed(stat: &Statx) -> Result<(), Errno> {
    if stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
        return Err(Errno::BUSY);
    }
    if stat.stx_attributes.intersects(FIXED) { Err(Errno::PERM) } else { Ok(()) }
}

fn check_removable(dir: &BranchDir, name: &CStr, stat: &Statx) -> Result<(), Errno> {
    check_fixed(stat)?;
    if is_folder(stat) && !is_empty(dir, name)? { Err(Errno::NOTEMPTY) } else { Ok(()) }
}

fn is_empty(dir: &BranchDir, name: &CStr) -> Result<bool, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = fs::openat(&dir.fd, name, flags, Mode::empty())?;
    let mut is_empty = true;
    each_entry(&folder, 0, FIRST_ENTRIES_BYTES, |entry| {
        is_empty &= matches!(entry.file_name().to_bytes(), b"." | b"..");
        Ok(is_empty)
    })?;
    Ok(is_empty)
}
