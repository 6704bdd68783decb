//! Files of packs on Windows: their owners, how they are opened and locked, and how a pack is replaced while processes
//! have it mapped.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::windows::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use thruway_sys::nt_file;
use thruway_sys::owner::{self, Distrust};

use crate::Error;
use crate::error::Kind;
use crate::identity::{Inode, start_of};
use crate::layout::MAGIC;

/// Sharing modes of `CreateFileW`: other processes may read the file, and may move or remove it.
const SHARE_READ: u32 = 1;
const SHARE_DELETE: u32 = 4;

/// `ERROR_SHARING_VIOLATION`: another process has the file open.
const SHARING_VIOLATION: i32 = 32;

/// Opens a pack to read it. Refuses a file that another user owns or may write.
pub(crate) fn open_trusted(path: &Path) -> Result<(File, Inode), Error> {
    let failed = |doing| move |error: io::Error| Error::system(path, doing, error);
    let file = open(path).map_err(failed("open"))?;
    if !file.metadata().map_err(failed("stat"))?.is_file() {
        return Err(Error::new(path, Kind::NotAFile));
    }
    owner::check(&file).map_err(failed("read the access list of"))?.map_err(|distrust| {
        let kind = match distrust {
            Distrust::OwnedByAnother => Kind::OwnedByAnother,
            Distrust::WritableByOthers => Kind::WritableByOthers,
        };
        Error::new(path, kind)
    })?;
    let id = nt_file::state_of_file(&file).map_or(0, |state| state.id);
    Ok((file, (0, id)))
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).share_mode(SHARE_READ | SHARE_DELETE).open(path)
}

/// Opens the file that a new pack is going to replace, so that the caller can check it; `None` if there is none.
pub(crate) fn open_to_check(path: &Path) -> Result<Option<File>, Error> {
    if path.is_dir() {
        return Err(Error::new(path, Kind::NotAFile));
    }
    match open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        // A parent of the path is a file.
        Err(error) if error.kind() == ErrorKind::NotADirectory => Ok(None),
        Err(error) => Err(Error::system(path, "open", error)),
    }
}

/// Windows has no limit of file sizes for a process.
pub(crate) fn check_size(_bytes: usize) -> io::Result<()> {
    Ok(())
}

/// Opens the partial file for this process alone; `None` if another process has it open.
pub(crate) fn lock(partial: &Path, may_create: bool) -> io::Result<Option<File>> {
    let opened = OpenOptions::new()
        .write(true)
        .create(may_create)
        .truncate(false)
        .share_mode(SHARE_DELETE)
        .open(partial);
    match opened {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.raw_os_error() == Some(SHARING_VIOLATION) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Does nothing: a folder inherits the access list of its parent, which belongs to the user.
pub(crate) fn for_this_user_alone(_: &mut DirBuilder) {}

/// Does nothing: Windows refuses to shorten a mapped file, and a read-only file could not be replaced.
pub(crate) fn forbid_writing(_: &File) -> io::Result<()> {
    Ok(())
}

/// Moves the partial file to the path of the pack, or beside the pack while that is mapped. Returns whether the file
/// was moved.
pub(crate) fn move_into_place(locked: File, partial: &Path, path: &Path) -> io::Result<bool> {
    // A file that is open without being shared cannot be opened by readers.
    drop(locked);
    let is_moved = std::fs::rename(partial, path).is_ok();
    if is_moved {
        // An older pack beside the path must not replace the new one later.
        let _ = std::fs::remove_file(next(path));
        return Ok(true);
    }
    let next = next(path);
    let is_free = match open(&next) {
        Ok(file) => start_of(file).is_ok_and(|start| start == MAGIC),
        Err(error) => error.kind() == ErrorKind::NotFound,
    };
    Ok(is_free && std::fs::rename(partial, next).is_ok())
}

/// Returns the path of the newest pack: `path`, after a pack beside it has been moved there; or the path of the pack
/// beside it, while the old one is mapped and cannot be replaced.
pub(crate) fn newest(path: &Path) -> PathBuf {
    let next = next(path);
    // A file that is not a pack is the user's own, and stays.
    let is_there = open(&next).and_then(start_of).is_ok_and(|start| start == MAGIC);
    if !is_there || std::fs::rename(&next, path).is_ok() { path.to_owned() } else { next }
}

/// Returns the name of a pack that could not be moved into place yet.
fn next(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".next");
    name.into()
}
