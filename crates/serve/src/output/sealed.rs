//! The output of TLS connections.

use std::io::{self, IoSlice, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use thruway_tls::Session;

use super::{FlushOutcome, Output, Part, gather, read_file};

/// The maximum number of bytes that are read from a file at once, to be encrypted and sent.
const PIECE_BYTES: usize = 64 << 10;

/// The maximum number of slices in one write.
const SLICES_MAX: usize = 16;

impl Output {
    /// Encrypts and sends waiting output like [`flush`](Self::flush). Bytes count as sent once they are encrypted.
    ///
    /// # Errors
    /// As for [`flush`](Self::flush).
    pub(crate) fn flush_sealed(
        &mut self,
        session: &mut Session,
        socket: BorrowedFd<'_>,
        quantum: &mut usize,
    ) -> Result<FlushOutcome, Errno> {
        let mut piece = Vec::new();
        loop {
            while !self.parts.is_empty()
                && *quantum > 0
                && self.seal(session, quantum, &mut piece)?
            {}
            match send(session, socket) {
                Ok(()) => {}
                Err(Errno::AGAIN) => return Ok(FlushOutcome::Blocked),
                Err(errno) => return Err(errno),
            }
            if self.parts.is_empty() {
                return Ok(FlushOutcome::Done);
            }
            if *quantum == 0 {
                return Ok(FlushOutcome::Quantum);
            }
        }
    }

    /// Adds slices. With a session they are encrypted at once, and only those that exceed its buffer are copied.
    pub(crate) fn seal_slices<'a>(
        &mut self,
        mut session: Option<&mut Session>,
        slices: impl Iterator<Item = &'a [u8]>,
    ) {
        for slice in slices {
            let is_next = self.parts.is_empty();
            let session = session.as_deref_mut().filter(|_| is_next);
            let sealed = session.map_or(0, |session| session.seal(slice));
            self.left_bytes += sealed as u64;
            self.push(Part::Bytes(slice[sealed..].to_vec()));
        }
    }

    /// Encrypts some of the first part; false if the session has to send some of its output first.
    fn seal(
        &mut self,
        session: &mut Session,
        quantum: &mut usize,
        piece: &mut Vec<u8>,
    ) -> Result<bool, Errno> {
        let Some(first) = self.parts.front_mut() else { return Ok(false) };
        let sealed = if let Part::File { file, offset, length } = first {
            let sealed = seal_file(session, (file, *offset, *length), *quantum, piece)?;
            *offset += sealed as u64;
            *length -= sealed as u64;
            self.file_bytes -= sealed as u64;
            if *length == 0 {
                self.parts.pop_front();
            }
            sealed
        } else {
            let bytes = first.bytes().unwrap_or_default();
            let bytes = &bytes[self.sent..];
            let sealed = session.seal(&bytes[..bytes.len().min(*quantum)]);
            self.forget(sealed);
            sealed
        };
        *quantum -= sealed;
        self.left_bytes += sealed as u64;
        Ok(sealed > 0)
    }
}

/// Encrypts the next bytes of a file's range, and returns their number.
fn seal_file(
    session: &mut Session,
    (file, offset, length): (&OwnedFd, u64, u64),
    quantum: usize,
    piece: &mut Vec<u8>,
) -> Result<usize, Errno> {
    piece.resize(PIECE_BYTES, 0);
    let most = usize::try_from(length).map_or(quantum, |length| length.min(quantum));
    // Bytes beyond the session's room would have to be read again.
    let most = most.min(PIECE_BYTES).min(session.room_bytes());
    if most == 0 {
        return Ok(0);
    }
    // If the file ends before the announced length, only the end of the connection can tell the client.
    let read = read_file(file.as_fd(), &mut piece[..most], offset)?;
    Ok(session.seal(&piece[..read]))
}

/// Sends the encrypted output of a session.
///
/// # Errors
/// The error of the socket; `EAGAIN` if the socket takes no more now.
pub(crate) fn send(session: &mut Session, socket: BorrowedFd<'_>) -> Result<(), Errno> {
    session.send(&mut PlainSocket(socket)).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => Errno::AGAIN,
        _ => error.raw_os_error().map_or(Errno::PIPE, Errno::from_raw_os_error),
    })
}

/// A socket that is written without a copy.
struct PlainSocket<'a>(BorrowedFd<'a>);

impl Write for PlainSocket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let slices = &slices[..slices.len().min(SLICES_MAX)];
        loop {
            match gather(self.0.as_fd(), slices, false) {
                Err(Errno::INTR) => {}
                sent => return Ok(sent?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
