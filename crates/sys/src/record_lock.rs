//! Locks on byte ranges that belong to an open file (`F_OFD_SETLK`) instead of a process.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The kind of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockKind {
    /// Any number of open files may hold the lock for reading.
    Shared,
    /// A single open file may hold the lock, for writing.
    Exclusive,
}

/// A lock on the bytes from `start` to `end`, both included. An `end` of `i64::MAX` is the end of the file, even as the
/// file grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordLock {
    /// The kind of the lock.
    pub kind: LockKind,
    /// The first byte.
    pub start: u64,
    /// The last byte.
    pub end: u64,
}

/// Acquires the lock without waiting.
///
/// # Errors
/// `EAGAIN` if another open file holds a conflicting lock.
pub fn try_lock(file: BorrowedFd<'_>, lock: &RecordLock) -> io::Result<()> {
    control(file, libc::F_OFD_SETLK, raw(raw_kind(lock.kind), lock.start, lock.end)?).map(|_| ())
}

/// Releases all locks of this open file between the two bytes.
///
/// # Errors
/// Any error of `fcntl`.
pub fn unlock(file: BorrowedFd<'_>, start: u64, end: u64) -> io::Result<()> {
    control(file, libc::F_OFD_SETLK, raw(libc::F_UNLCK, start, end)?).map(|_| ())
}

/// Returns a lock of another open file that conflicts with this lock, and the id of the process that holds it (-1 if
/// the lock belongs to an open file).
///
/// # Errors
/// Any error of `fcntl`.
pub fn conflict(file: BorrowedFd<'_>, lock: &RecordLock) -> io::Result<Option<(RecordLock, i32)>> {
    let asked = raw(raw_kind(lock.kind), lock.start, lock.end)?;
    let found = control(file, libc::F_OFD_GETLK, asked)?;
    let kind = match i32::from(found.l_type) {
        libc::F_RDLCK => LockKind::Shared,
        libc::F_WRLCK => LockKind::Exclusive,
        _ => return Ok(None),
    };
    let start = found.l_start.cast_unsigned();
    let end = match found.l_len {
        0 => i64::MAX.cast_unsigned(),
        length => start + length.cast_unsigned() - 1,
    };
    Ok(Some((RecordLock { kind, start, end }, found.l_pid)))
}

fn control(file: BorrowedFd<'_>, command: i32, mut lock: libc::flock) -> io::Result<libc::flock> {
    // SAFETY: the commands read and write a single `flock`, which they are given.
    let status = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(lock) }
}

fn raw_kind(kind: LockKind) -> i32 {
    match kind {
        LockKind::Shared => libc::F_RDLCK,
        LockKind::Exclusive => libc::F_WRLCK,
    }
}

fn raw(kind: i32, start: u64, end: u64) -> io::Result<libc::flock> {
    let whole = |number: u64| i64::try_from(number).map_err(|_| io::ErrorKind::InvalidInput);
    // A length of zero reaches to the end of the file.
    let length = if end >= i64::MAX.cast_unsigned() { 0 } else { whole(end - start.min(end))? + 1 };
    let whole_kind = i16::try_from(kind).map_err(io::Error::other)?;
    let whence = i16::try_from(libc::SEEK_SET).map_err(io::Error::other)?;
    Ok(libc::flock {
        l_type: whole_kind,
        l_whence: whence,
        l_start: whole(start)?,
        l_len: length,
        l_pid: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    const END: u64 = i64::MAX.cast_unsigned();

    #[test]
    fn two_open_files_of_one_process_are_in_each_others_way() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::options().read(true).write(true).open(file.path()).unwrap();
        let (one, other) = (open(), open());
        let exclusive = |start, end| RecordLock { kind: LockKind::Exclusive, start, end };
        try_lock(one.as_fd(), &exclusive(10, 19)).unwrap();
        try_lock(other.as_fd(), &exclusive(20, END)).unwrap();
        let error = try_lock(other.as_fd(), &exclusive(0, 10)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        let (lock, _) = conflict(other.as_fd(), &exclusive(0, END)).unwrap().unwrap();
        assert_eq!(lock, exclusive(10, 19));
        let (lock, _) = conflict(one.as_fd(), &exclusive(25, 30)).unwrap().unwrap();
        assert_eq!(lock, exclusive(20, END));
        unlock(one.as_fd(), 0, END).unwrap();
        try_lock(other.as_fd(), &exclusive(0, 10)).unwrap();
        assert_eq!(conflict(other.as_fd(), &exclusive(0, END)).unwrap(), None);
    }
}
