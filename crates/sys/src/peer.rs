//! The process at the other end of a Unix socket.
//!
//! rustix has this call, but with a process id that cannot be zero. The kernel reports zero for a process in a PID
//! namespace that this process cannot see.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd};

/// The credentials of the process at the other end of a Unix socket, at the time when it connected or listened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// The process id; `None` if this process cannot see the peer.
    pub pid: Option<i32>,
    /// The user id.
    pub uid: u32,
}

/// Returns the peer's credentials (`SO_PEERCRED`, unix(7)).
///
/// # Errors
/// The descriptor is not a Unix socket.
pub fn of(socket: BorrowedFd<'_>) -> io::Result<Peer> {
    let mut credentials = MaybeUninit::<libc::ucred>::uninit();
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the descriptor is open, and the structure is writable for `length` bytes.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            credentials.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has filled the structure.
    let credentials = unsafe { credentials.assume_init() };
    Ok(Peer { pid: Some(credentials.pid).filter(|&pid| pid > 0), uid: credentials.uid })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_other_end_of_our_own_socket_is_us() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let peer = of(ours.as_fd()).unwrap();
        assert_eq!(peer.pid, i32::try_from(std::process::id()).ok());
        assert!(of(File::open("/dev/null").unwrap().as_fd()).is_err());
    }
}
