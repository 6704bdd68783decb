//! Files that a boot leaves open. Forks would share them, unlike two separate commands.
//!
//! The position of a file or a folder, and a lock, belong to the kernel's open file description, which a fork
//! shares with its parent. So each child opens its files again. A boot with an open file that cannot be
//! opened again does not become a template.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::path::PathBuf;

use rustix::fs::{self, CWD, FileType, Mode, OFlags, SeekFrom};
use rustix::io::{DupFlags, FdFlags, fcntl_getfd};
use thruway_sys::descriptor;

/// A set of open descriptors: number, device and inode of each.
#[derive(Debug, Clone, Default)]
pub struct Descriptors(BTreeSet<(RawFd, u64, u64)>);

impl Descriptors {
    /// Returns all open descriptors of this process.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn open() -> io::Result<Self> {
        let entries = std::fs::read_dir("/proc/self/fd")?.collect::<io::Result<Vec<_>>>()?;
        let number = |entry: &std::fs::DirEntry| entry.file_name().to_str()?.parse().ok();
        // The listing includes the descriptor of `/proc/self/fd` itself, which is closed by now.
        let is_there = |number: RawFd| descriptor::with(number, identity).flatten();
        Ok(Self(entries.iter().filter_map(number).filter_map(is_there).collect()))
    }

    /// Returns the given descriptors as a set.
    #[must_use]
    pub fn of<'a>(all: impl IntoIterator<Item = BorrowedFd<'a>>) -> Self {
        Self(all.into_iter().filter_map(identity).collect())
    }

    /// Returns the numbers whose open file is not in this set.
    fn opened_since(&self) -> io::Result<Vec<RawFd>> {
        Ok(Self::open()?.0.difference(&self.0).map(|(number, ..)| *number).collect())
    }
}

fn identity(file: BorrowedFd<'_>) -> Option<(RawFd, u64, u64)> {
    let stat = fs::fstat(file).ok()?;
    Some((file.as_raw_fd(), stat.st_dev, stat.st_ino))
}

/// Returns why a file opened since `known` cannot be reopened in each child; `None` if all can.
#[must_use]
pub fn objection(known: &Descriptors) -> Option<String> {
    known.opened_since().unwrap_or_default().into_iter().find_map(|number| {
        let name = target(number);
        let said = name.to_string_lossy();
        descriptor::with(number, |file| match kind(file)? {
            _ if said.starts_with("anon_inode:inotify") => Some("it watches files".to_owned()),
            FileType::Socket => Some("it has an open socket".to_owned()),
            FileType::Fifo => Some("it has an open pipe".to_owned()),
            FileType::RegularFile if is_locked(number) => Some(format!("it has a lock on {said}")),
            FileType::RegularFile if is_rewritten(file) => {
                Some(format!("it has {said} open for writing other than by appending"))
            }
            FileType::RegularFile | FileType::Directory if copy(file).is_err() => {
                Some(format!("it cannot open {said} again"))
            }
            _ => None,
        })?
    })
}

/// Opens again, in a child, each file and folder that is not among `given`, at its current position. Ruby has
/// read part of its script by then, so the position matters.
///
/// # Errors
/// A file has gone or is not readable any more.
pub fn open_again(given: &Descriptors) -> io::Result<()> {
    for number in given.opened_since()? {
        let again = |file: BorrowedFd<'_>| match kind(file) {
            Some(FileType::RegularFile | FileType::Directory) => replace(file),
            _ => Ok(()),
        };
        descriptor::with(number, again).transpose()?;
    }
    Ok(())
}

fn replace(file: BorrowedFd<'_>) -> io::Result<()> {
    let flags = match fcntl_getfd(file)? {
        flags if flags.contains(FdFlags::CLOEXEC) => DupFlags::CLOEXEC,
        _ => DupFlags::empty(),
    };
    descriptor::replace(copy(file)?, file.as_raw_fd(), flags == DupFlags::CLOEXEC)
}

/// Opens the same file once more at the same position.
fn copy(file: BorrowedFd<'_>) -> io::Result<std::os::fd::OwnedFd> {
    let flags = fs::fcntl_getfl(file)?.difference(OFlags::NOFOLLOW) | OFlags::CLOEXEC;
    let again = format!("/proc/self/fd/{}", file.as_raw_fd());
    let copy = fs::openat(CWD, again, flags, Mode::empty())?;
    fs::seek(&copy, SeekFrom::Start(fs::tell(file)?))?;
    Ok(copy)
}

fn kind(file: BorrowedFd<'_>) -> Option<FileType> {
    Some(FileType::from_raw_mode(fs::fstat(file).ok()?.st_mode))
}

fn target(number: RawFd) -> PathBuf {
    std::fs::read_link(format!("/proc/self/fd/{number}")).unwrap_or_default()
}

/// Whether the process or the open file description holds a lock on the file.
fn is_locked(number: RawFd) -> bool {
    let said = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap_or_default();
    said.lines().any(|line| line.starts_with("lock:"))
}

/// Whether the file is written at its own position. Files opened for appending, such as logs, can be shared
/// by all commands.
fn is_rewritten(file: BorrowedFd<'_>) -> bool {
    let flags = fs::fcntl_getfl(file).unwrap_or(OFlags::empty());
    flags.intersects(OFlags::WRONLY | OFlags::RDWR) && !flags.contains(OFlags::APPEND)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, OpenOptions};
    use std::io::{Read, Seek};
    use std::os::fd::AsFd;

    #[test]
    fn a_file_that_is_opened_again_has_a_place_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "abc").unwrap();
        let mut file = File::open(&path).unwrap();
        let mut shared = file.try_clone().unwrap();
        file.read_exact(&mut [0]).unwrap();
        std::fs::remove_file(&path).unwrap();
        replace(file.as_fd()).unwrap();
        assert!(fcntl_getfd(&file).unwrap().contains(FdFlags::CLOEXEC));
        shared.seek(io::SeekFrom::End(0)).unwrap();
        let mut rest = String::new();
        file.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "bc");
    }

    #[test]
    fn a_file_that_cannot_be_opened_again_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "").unwrap();
        // Other tests open files at the same time.
        let except = |file: &dyn AsRawFd| {
            let mut known = Descriptors::open().unwrap();
            known.0.retain(|(number, ..)| *number != file.as_raw_fd());
            objection(&known).unwrap_or_default()
        };
        let mut options = OpenOptions::new();
        assert_eq!(except(&File::open(&path).unwrap()), "");
        assert_eq!(except(&options.append(true).open(&path).unwrap()), "");
        let rewritten = OpenOptions::new().write(true).open(&path).unwrap();
        assert!(except(&rewritten).contains("a open for writing"));
        let locked = File::open(&path).unwrap();
        fs::flock(&locked, fs::FlockOperation::LockShared).unwrap();
        assert!(except(&locked).starts_with("it has a lock on /"));
        let (reader, _writer) = io::pipe().unwrap();
        assert_eq!(except(&reader), "it has an open pipe");
    }
}
