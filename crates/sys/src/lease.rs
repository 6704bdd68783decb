//! Leases on files (`F_SETLEASE`): the kernel delays an open for writing until the lease is released.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// A lease that lasts while nobody opens the file for writing. It is released when this value is dropped.
///
/// A program that opens the file for writing waits for the release, and the process with the lease gets `SIGIO`, which
/// it has to ignore.
#[derive(Debug)]
pub struct ReadLease<'a> {
    file: BorrowedFd<'a>,
}

impl<'a> ReadLease<'a> {
    /// Takes the lease. `file` has to be open for reading only.
    ///
    /// # Errors
    /// `EAGAIN` if the file is open for writing, `EACCES` if it belongs to another user, `EINVAL` if its file system
    /// has no leases.
    pub fn take(file: BorrowedFd<'a>) -> io::Result<Self> {
        set(file, libc::F_RDLCK).map(|()| Self { file })
    }

    /// Whether nobody waits for the release of the lease.
    #[must_use]
    pub fn is_unbroken(&self) -> bool {
        // SAFETY: the command takes no argument.
        let kind = unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_GETLEASE) };
        kind == libc::F_RDLCK
    }
}

impl Drop for ReadLease<'_> {
    fn drop(&mut self) {
        // The lease ends with the descriptor at the latest.
        let _ = set(self.file, libc::F_UNLCK);
    }
}

fn set(file: BorrowedFd<'_>, kind: i32) -> io::Result<()> {
    // SAFETY: the command takes a number.
    let status = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::OpenOptionsExt;

    #[test]
    fn an_open_for_writing_breaks_a_lease_and_prevents_another() {
        crate::signal::ignore(&[libc::SIGIO]).unwrap();
        let file = tempfile::NamedTempFile::new_in(".").unwrap();
        let reader = File::open(file.path()).unwrap();
        assert!(ReadLease::take(reader.as_fd()).is_err(), "the file is open for writing");
        let path = file.into_temp_path();
        let lease = ReadLease::take(reader.as_fd()).unwrap();
        assert!(lease.is_unbroken());
        let writing = File::options().write(true).custom_flags(libc::O_NONBLOCK).open(&path);
        assert_eq!(writing.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(!lease.is_unbroken());
        drop(lease);
        File::options().write(true).open(&path).unwrap();
    }
}
