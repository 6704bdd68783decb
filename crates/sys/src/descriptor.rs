//! Descriptors by their numbers: those that a program is started with.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::outcome::check;

/// Whether a program that this process starts would have the descriptor: it is open, and not closed on exec.
#[must_use]
pub fn is_inherited(number: RawFd) -> bool {
    // SAFETY: any number may be asked about.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    flags != -1 && flags & libc::FD_CLOEXEC == 0
}

/// Puts a copy of a descriptor at a number, in the place of what is there, such that programs inherit it.
///
/// # Errors
/// `EBADF`: the number is beyond the limit.
pub fn put(descriptor: BorrowedFd<'_>, number: RawFd) -> io::Result<()> {
    if descriptor.as_raw_fd() == number {
        // SAFETY: the flags of an open descriptor may be set.
        return check(unsafe { libc::fcntl(number, libc::F_SETFD, 0) });
    }
    // SAFETY: the caller gives the number up: whatever was there is replaced.
    check(unsafe { libc::dup2(descriptor.as_raw_fd(), number) })
}

/// Moves a descriptor to a number, in the place of what is there. Programs inherit it unless `closes_on_exec`.
///
/// # Errors
/// `EBADF`: the number is beyond the limit.
pub fn replace(descriptor: OwnedFd, number: RawFd, closes_on_exec: bool) -> io::Result<()> {
    let flags = if closes_on_exec { libc::O_CLOEXEC } else { 0 };
    // SAFETY: the caller gives the number up: whatever was there is replaced.
    check(unsafe { libc::dup3(descriptor.as_raw_fd(), number, flags) })
}

/// A copy of a descriptor at the lowest free number from `first` on, closed on exec.
///
/// # Errors
/// No number is left.
pub fn copy_from(descriptor: BorrowedFd<'_>, first: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: it is open as long as it is borrowed.
    let number = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_DUPFD_CLOEXEC, first) };
    check(number)?;
    // SAFETY: it is new, and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Borrows the descriptor of that number for a moment; `None` if none is open there.
#[must_use]
pub fn with<T>(number: RawFd, use_it: impl FnOnce(BorrowedFd<'_>) -> T) -> Option<T> {
    // SAFETY: any number may be asked about.
    let is_open = unsafe { libc::fcntl(number, libc::F_GETFD) } != -1;
    // SAFETY: it is open; a process that closes numbers of others is broken in any case.
    is_open.then(|| use_it(unsafe { BorrowedFd::borrow_raw(number) }))
}

/// Closes whatever is at a number.
pub fn close(number: RawFd) {
    // SAFETY: the caller gives the number up; a number that is not open is refused.
    unsafe { libc::close(number) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    #[test]
    fn a_descriptor_is_put_at_a_number_for_programs_to_inherit() {
        let file = File::open("/dev/null").unwrap();
        assert!(!is_inherited(file.as_raw_fd()));
        let copy = copy_from(file.as_fd(), 200).unwrap();
        assert!(copy.as_raw_fd() >= 200 && !is_inherited(copy.as_raw_fd()));
        put(file.as_fd(), copy.as_raw_fd()).unwrap();
        assert!(is_inherited(copy.as_raw_fd()));
        assert_eq!(with(copy.as_raw_fd(), |copy| copy.as_raw_fd()), Some(copy.as_raw_fd()));
        assert_eq!(with(-1, |_| ()), None);
    }
}
