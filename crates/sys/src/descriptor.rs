//! Descriptors by number, for descriptors that this process or a program that it starts inherits.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::outcome::check;

/// Whether a program that this process starts would inherit the descriptor: it is open, and not close-on-exec.
#[must_use]
pub fn is_inherited(number: RawFd) -> bool {
    // SAFETY: the call accepts any number.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    flags != -1 && flags & libc::FD_CLOEXEC == 0
}

/// Copies a descriptor to a number, replacing the descriptor there. Programs inherit the copy.
///
/// # Errors
/// `EBADF`: the number is beyond the limit.
pub fn put(descriptor: BorrowedFd<'_>, number: RawFd) -> io::Result<()> {
    if descriptor.as_raw_fd() == number {
        // SAFETY: the flags of an open descriptor may be set.
        return check(unsafe { libc::fcntl(number, libc::F_SETFD, 0) });
    }
    // SAFETY: the caller gives up the number, whose descriptor is replaced.
    check(unsafe { libc::dup2(descriptor.as_raw_fd(), number) })
}

/// Moves a descriptor to a number, replacing the descriptor there. Programs inherit it unless `closes_on_exec`.
///
/// # Errors
/// `EBADF`: the number is beyond the limit.
pub fn replace(descriptor: OwnedFd, number: RawFd, closes_on_exec: bool) -> io::Result<()> {
    let flags = if closes_on_exec { libc::O_CLOEXEC } else { 0 };
    // SAFETY: the caller gives up the number, whose descriptor is replaced.
    check(unsafe { libc::dup3(descriptor.as_raw_fd(), number, flags) })
}

/// Copies a descriptor to the lowest free number from `first` on, with close-on-exec set.
///
/// # Errors
/// No number is free.
pub fn copy_from(descriptor: BorrowedFd<'_>, first: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: a borrowed descriptor is open.
    let number = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_DUPFD_CLOEXEC, first) };
    check(number)?;
    // SAFETY: the descriptor is new, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Borrows the descriptor with the given number for the duration of `action`. Returns `None` if no descriptor is open
/// there.
#[must_use]
pub fn with<T>(number: RawFd, action: impl FnOnce(BorrowedFd<'_>) -> T) -> Option<T> {
    // SAFETY: the call accepts any number.
    let is_open = unsafe { libc::fcntl(number, libc::F_GETFD) } != -1;
    // SAFETY: the descriptor is open. Code that closes descriptors of other owners breaks any Rust program.
    is_open.then(|| action(unsafe { BorrowedFd::borrow_raw(number) }))
}

/// Closes the descriptor with the given number, if there is one.
pub fn close(number: RawFd) {
    // SAFETY: the caller gives up the number; the system rejects a number that is not open.
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
