//! Files of packs on POSIX: whom they belong to, and how they are opened and locked.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{self, CWD, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::Error;
use crate::error::Kind;
use crate::identity::Inode;

/// The mode of a folder created for a pack, as for a user's cache (XDG Base Directory Specification).
const FOLDER_MODE: u32 = 0o700;

/// The flags with which a file of any kind can be opened without waiting.
const OPEN: OFlags =
    OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// Opens a pack to read it. Refuses a file that another user owns or may write.
pub(crate) fn open_trusted(path: &Path) -> Result<(File, Inode), Error> {
    let file = fs::openat(CWD, path, OPEN, Mode::empty())
        .map_err(|errno| Error::system(path, "open", errno))?;
    let stat = fs::fstat(&file).map_err(|errno| Error::system(path, "stat", errno))?;
    trust(&stat).map_err(|kind| Error::new(path, kind))?;
    #[cfg_attr(
        not(target_os = "macos"),
        expect(clippy::useless_conversion, reason = "macOS has a signed type of 32 bits")
    )]
    let device = stat.st_dev.try_into().unwrap_or(u64::MAX);
    Ok((File::from(file), (device, stat.st_ino)))
}

fn trust(stat: &Stat) -> Result<(), Kind> {
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Kind::NotAFile);
    }
    let user = rustix::process::geteuid().as_raw();
    if stat.st_uid != user && stat.st_uid != 0 {
        return Err(Kind::OwnedByAnother { uid: stat.st_uid });
    }
    if stat.st_mode & 0o022 != 0 {
        return Err(Kind::WritableByOthers { mode: stat.st_mode });
    }
    Ok(())
}

/// Opens the file that a new pack is going to replace, so that the caller can check it; `None` if there is none.
pub(crate) fn open_to_check(path: &Path) -> Result<Option<File>, Error> {
    let file = match fs::openat(CWD, path, OPEN, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        opened => opened.map_err(|errno| Error::system(path, "open", errno))?,
    };
    let stat = fs::fstat(&file).map_err(|errno| Error::system(path, "stat", errno))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Error::new(path, Kind::NotAFile));
    }
    Ok(Some(File::from(file)))
}

/// Opens and locks the partial file; `None` if another process has it locked.
///
/// In a folder where others may create files, the name may belong to something else: a pipe, for whose reader an open
/// would wait, or another user's file, who would read the pack.
pub(crate) fn lock(partial: &Path, may_create: bool) -> io::Result<Option<File>> {
    let create = if may_create { OFlags::CREATE } else { OFlags::empty() };
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NOCTTY | create;
    let file = fs::openat(CWD, partial, flags | OFlags::NONBLOCK, Mode::RUSR | Mode::WUSR)?;
    let found = fs::fstat(&file)?;
    let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
    if !is_file || found.st_uid != rustix::process::geteuid().as_raw() {
        let name = partial.display();
        return Err(io::Error::other(format!("{name} is not a regular file of this user")));
    }
    match fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    }
    // Between opening and locking, the previous owner may have moved the file into place.
    let is_same = fs::lstat(partial).is_ok_and(|named| named.st_ino == found.st_ino);
    Ok(is_same.then(|| File::from(file)))
}

/// Fails if the process may not write a file of so many bytes (`RLIMIT_FSIZE`). The write itself would send the process
/// a signal (`SIGXFSZ`) that ends the user's program.
pub(crate) fn check_size(bytes: usize) -> io::Result<()> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    match limit {
        Some(limit) if bytes as u64 > limit => Err(Errno::FBIG.into()),
        _ => Ok(()),
    }
}

pub(crate) fn for_this_user_alone(builder: &mut DirBuilder) {
    builder.mode(FOLDER_MODE);
}

/// Makes the file read-only for everybody, so that no one edits it in place.
pub(crate) fn forbid_writing(file: &File) -> io::Result<()> {
    Ok(fs::fchmod(file, Mode::RUSR | Mode::RGRP | Mode::ROTH)?)
}

/// Moves the locked partial file to the path of the pack. Returns whether that was possible.
pub(crate) fn move_into_place(locked: File, partial: &Path, path: &Path) -> io::Result<bool> {
    let moved = std::fs::rename(partial, path);
    drop(locked);
    moved.map(|()| true)
}

/// Returns the path of the newest pack.
pub(crate) fn newest(path: &Path) -> PathBuf {
    path.to_owned()
}
