//! The process at the other end of a socket.
//!
//! rustix has this call, with a process number that cannot be zero. The kernel says zero of a process in a PID
//! namespace that we do not see.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd};

/// The process at the other end of a Unix socket, as it was when it connected or listened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its number; `None` if this process cannot see it.
    pub pid: Option<i32>,
    /// Its user.
    pub uid: u32,
}

/// Asks the kernel (`SO_PEERCRED`, unix(7)).
///
/// # Errors
/// The descriptor is no Unix socket.
pub fn of(socket: BorrowedFd<'_>) -> io::Result<Peer> {
    let mut said = MaybeUninit::<libc::ucred>::uninit();
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the descriptor is open, and the structure is valid for as many bytes as `length` says.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            said.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has filled the structure.
    let said = unsafe { said.assume_init() };
    Ok(Peer { pid: Some(said.pid).filter(|&pid| pid > 0), uid: said.uid })
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
