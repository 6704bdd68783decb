//! Queries about a socket's state in the kernel.

use std::ffi::c_int;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, ioctl};

/// `SIOCOUTQ` (tcp(7), unix(7)).
const QUEUED: Opcode = libc::TIOCOUTQ as Opcode;

/// Returns the number of bytes that were written to `socket` and not yet received by the peer; for TCP, not yet
/// acknowledged.
///
/// # Errors
/// Any error of `ioctl`, such as `ENOTTY` if the descriptor is not a stream socket.
pub fn queued_bytes(socket: BorrowedFd<'_>) -> Result<u64, Errno> {
    // SAFETY: SIOCOUTQ writes a single int.
    let getter = unsafe { Getter::<QUEUED, c_int>::new() };
    // SAFETY: the type of the argument fits the request.
    let bytes = unsafe { ioctl(socket, getter) }?;
    Ok(u64::try_from(bytes).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    #[test]
    fn bytes_that_the_peer_has_not_received_are_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        server.set_nonblocking(true).unwrap();
        let piece = [0; 1 << 16];
        let mut written = 0;
        while let Ok(bytes) = server.write(&piece) {
            written += bytes as u64;
        }
        let queued = queued_bytes(server.as_fd()).unwrap();
        assert!(0 < queued && queued <= written, "{queued} of {written}");
        let mut all = vec![0; usize::try_from(written).unwrap()];
        client.read_exact(&mut all).unwrap();
        while queued_bytes(server.as_fd()).unwrap() > 0 {
            std::thread::yield_now();
        }
    }
}
