//! Queries to the disk on POSIX.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{self, AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use thruway_pack::Stamp;

use super::{FolderEntry, NAMES_MAX, NoStatus};
use crate::listing::NameKind;

/// The state of a file at one moment.
pub(crate) type Status = fs::Stat;

/// Returns the state of the file at a path. A link is examined itself.
pub(crate) fn status(path: &[u8]) -> Result<Status, NoStatus> {
    fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).map_err(|errno| match errno {
        Errno::NOENT | Errno::NOTDIR => NoStatus::Missing,
        _ => NoStatus::Unknown,
    })
}

/// As [`status`]. On Windows it also proves that this process may read the file.
pub(crate) fn status_for_reading(path: &[u8]) -> Result<Status, NoStatus> {
    status(path)
}

/// Returns the state of the file to which a path leads.
pub(crate) fn status_of_target(path: &[u8]) -> Option<Status> {
    fs::statat(CWD, path, AtFlags::empty()).ok()
}

pub(crate) fn status_of_file(file: &File) -> Option<Status> {
    fs::fstat(file).ok()
}

pub(crate) fn stamp(status: &Status) -> Stamp {
    Stamp::of(status)
}

pub(crate) fn kind(status: &Status) -> NameKind {
    kind_of(FileType::from_raw_mode(status.st_mode))
}

fn kind_of(file_type: FileType) -> NameKind {
    match file_type {
        FileType::RegularFile => NameKind::File,
        FileType::Directory => NameKind::Folder,
        FileType::Symlink => NameKind::Link,
        _ => NameKind::Other,
    }
}

pub(crate) fn is_same_file(one: &Status, other: &Status) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// Returns `false`: a stat does not tell whether links are on the way.
pub(crate) fn is_at_its_path(_status: &Status) -> bool {
    false
}

pub(crate) fn has_other_links(status: &Status) -> bool {
    status.st_nlink > 1
}

/// Returns the target of the link at a path.
pub(crate) fn read_link(path: &[u8]) -> Option<Vec<u8>> {
    fs::readlink(path, Vec::new()).ok().map(|target| target.into_bytes())
}

/// Opens a file for reading, without waiting for the other end of a FIFO.
pub(crate) fn open(path: &[u8]) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    fs::open(path, flags, Mode::empty()).ok().map(File::from)
}

/// Reads a folder's stamp and then its names; `None` if there are too many names, or if the folder cannot be
/// read.
pub(crate) fn read_folder(path: &[u8]) -> Option<(Stamp, Vec<FolderEntry>)> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let open = fs::openat(CWD, path, flags, Mode::empty()).ok()?;
    let stamp = Stamp::of(&fs::fstat(&open).ok()?);
    let mut names = Vec::new();
    for entry in Dir::new(open).ok()? {
        let entry = entry.ok()?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            names.push((name.to_vec(), kind_of(entry.file_type())));
        }
        if names.len() > NAMES_MAX {
            return None;
        }
    }
    Some((stamp, names))
}

/// Returns the effective user ID.
pub(crate) fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

pub(crate) fn native_path(path: &[u8]) -> Cow<'_, Path> {
    Cow::Borrowed(Path::new(OsStr::from_bytes(path)))
}

pub(crate) fn path_bytes(path: &Path) -> Cow<'_, [u8]> {
    Cow::Borrowed(path.as_os_str().as_bytes())
}

/// Returns the bytes of a path that the system has made.
pub(crate) fn real_path_bytes(path: &Path) -> Cow<'_, [u8]> {
    path_bytes(path)
}

/// Returns `false`: a device is a file among others.
pub(crate) fn is_device(_path: &[u8]) -> bool {
    false
}
