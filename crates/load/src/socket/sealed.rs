//! TLS on a socket.

use std::io::{self as std_io, Write};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::{self, Errno};
use rustix::net::{RecvFlags, SendFlags, recv, send as send_bytes};
use thruway_tls::{RECORD_BYTES_MAX, Session};

use crate::run_context::RunContext;

/// Starts a session, if the plan uses TLS.
pub(super) fn begin(context: &RunContext<'_>) -> io::Result<Option<Box<Session>>> {
    let session = context.plan.tls.as_ref().map(|tls| tls.begin().map(Box::new));
    session.transpose().map_err(|_| Errno::PROTO)
}

/// Seals bytes and sends as much as there is room for. Returns the number of sealed bytes, and whether there
/// was too little room. Bytes sealed during the handshake are sent after it.
pub(super) fn send(
    session: &mut Session,
    socket: impl AsFd,
    bytes: &[u8],
) -> io::Result<(usize, bool)> {
    let mut sealed = 0;
    loop {
        let now = if session.has_unsent() { 0 } else { session.seal(&bytes[sealed..]) };
        sealed += now;
        match flush(session, socket.as_fd()) {
            Ok(()) if sealed < bytes.len() && now > 0 => {}
            Ok(()) => return Ok((sealed, sealed < bytes.len() && !session.is_handshaking())),
            Err(Errno::AGAIN) => return Ok((sealed, true)),
            Err(errno) => return Err(errno),
        }
    }
}

/// Reads up to `most` sealed bytes and opens them at the start of `buffer`.
pub(super) fn receive(
    session: &mut Session,
    socket: impl AsFd,
    buffer: &mut [u8],
    most: usize,
) -> io::Result<Option<usize>> {
    let most = most.min(buffer.len() - RECORD_BYTES_MAX);
    let room = &mut buffer[RECORD_BYTES_MAX..][..most];
    let length = match recv(socket.as_fd(), room, RecvFlags::empty()) {
        Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
        received => received?.0,
    };
    if length == 0 {
        return Ok(Some(0));
    }
    let opened = session.open(buffer, RECORD_BYTES_MAX..RECORD_BYTES_MAX + length);
    // A part of the handshake that does not fit now is sent with the next request.
    match flush(session, socket.as_fd()) {
        Ok(()) | Err(Errno::AGAIN) => {}
        Err(errno) => return Err(errno),
    }
    match opened.map_err(|_| Errno::PROTO)? {
        0 if !session.is_over() => Ok(None),
        opened => Ok(Some(opened)),
    }
}

fn flush(session: &mut Session, socket: BorrowedFd<'_>) -> io::Result<()> {
    session.send(&mut Socket(socket)).map_err(|error| match error.kind() {
        std_io::ErrorKind::WouldBlock => Errno::AGAIN,
        _ => error.raw_os_error().map_or(Errno::PIPE, Errno::from_raw_os_error),
    })
}

struct Socket<'a>(BorrowedFd<'a>);

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> std_io::Result<usize> {
        loop {
            match send_bytes(self.0, bytes, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                sent => return Ok(sent?),
            }
        }
    }

    fn flush(&mut self) -> std_io::Result<()> {
        Ok(())
    }
}
