//! Output that a client has yet to take.
//!
//! Reading order: this file queues and sends output; `sealed` does the same for TLS. `spool_file` moves output to a
//! file before it fills the memory, and `pace` detects clients that take too little. `unchunk` decodes a chunked body
//! for a client that must not receive chunks. `tunnel` passes bytes between a TLS session and an application that has
//! taken over the connection.

pub(crate) mod pace;
pub(crate) mod spool_file;
pub(crate) mod tunnel;
pub(crate) mod unchunk;

mod sealed;

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::sendfile;
use rustix::io::{Errno, pread};
use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg};

pub(crate) use sealed::send as send_sealed;

use crate::output::pace::Pace;
use crate::output::spool_file::SpoolFile;

/// The maximum number of bytes that one turn sends: other connections have their turns during a longer body.
pub const QUANTUM_BYTES: usize = 256 << 10;

/// The maximum number of pieces in one gathered write.
const SLICES_MAX: usize = 16;

/// The length up to which a part is joined with the next one: many short parts cost more than a copy.
const MERGED_BYTES_MAX: usize = 16 << 10;

/// Bytes of another owner, kept until they are sent.
pub type SharedBytes = Box<dyn AsRef<[u8]> + Send>;

/// A piece of a response's body.
pub enum Part {
    /// Bytes.
    Bytes(Vec<u8>),
    /// Bytes that are not copied.
    Shared(SharedBytes),
    /// A range of a file, which the kernel sends.
    File {
        /// The file; several parts may share it.
        file: Arc<OwnedFd>,
        /// The offset at which the range starts.
        offset: u64,
        /// The length of the range in bytes.
        length: u64,
    },
}

impl fmt::Debug for Part {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { offset, .. } => write!(formatter, "File({}@{offset})", self.left_bytes()),
            _ => write!(formatter, "Bytes({})", self.left_bytes()),
        }
    }
}

impl Part {
    /// The bytes of a part that is not a file.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Shared(bytes) => Some(AsRef::as_ref(&**bytes)),
            Self::File { .. } => None,
        }
    }

    /// The length in bytes that is left.
    #[must_use]
    pub fn left_bytes(&self) -> u64 {
        match self {
            Self::File { length, .. } => *length,
            bytes => bytes.bytes().map_or(0, |bytes| bytes.len() as u64),
        }
    }
}

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlushOutcome {
    /// All output is sent.
    Done,
    /// The client has to take some output first.
    Blocked,
    /// The quantum is used up.
    Quantum,
}

/// Parts in sending order.
#[derive(Debug, Default)]
pub(crate) struct Output {
    parts: VecDeque<Part>,
    /// The number of bytes of the first part that have been sent, if the part is not a file.
    sent: usize,
    /// Bytes that wait in memory, including the sent bytes of the first part.
    memory_bytes: usize,
    /// Bytes that wait in files.
    file_bytes: u64,
    /// Bytes that were sent.
    left_bytes: u64,
    spool: Option<SpoolFile>,
    /// The pace of the client, once the server has begun to check it.
    pub(crate) pace: Option<Pace>,
}

impl Output {
    pub(crate) fn push(&mut self, part: Part) {
        if part.left_bytes() == 0 {
            return;
        }
        match part.bytes() {
            Some(bytes) => self.memory_bytes += bytes.len(),
            None => self.file_bytes += part.left_bytes(),
        }
        match (self.parts.back_mut(), &part) {
            (Some(Part::Bytes(last)), Part::Bytes(next)) if last.len() < MERGED_BYTES_MAX => {
                last.extend_from_slice(next);
            }
            _ => self.parts.push_back(part),
        }
    }

    /// Bytes that wait in memory, the cost of a slow client.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory_bytes - self.sent
    }

    /// Bytes that wait in memory and in files.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.memory_bytes() as u64 + self.file_bytes
    }

    /// Bytes that were sent so far.
    pub(crate) fn left_bytes(&self) -> u64 {
        self.left_bytes
    }

    /// Moves bytes from memory into a file, the last ones first, until at most `memory_bytes_max` are left in memory.
    ///
    /// # Errors
    /// The file cannot be created or written. Some of the waiting bytes are then lost.
    pub(crate) fn spool(&mut self, memory_bytes_max: usize) -> io::Result<()> {
        let mut moved = Vec::new();
        while self.memory_bytes() > memory_bytes_max
            && let Some(part) = self.parts.pop_back()
        {
            self.memory_bytes -= part.bytes().map_or(0, <[u8]>::len);
            // Only the first part can be partly sent.
            let sent = if self.parts.is_empty() { std::mem::take(&mut self.sent) } else { 0 };
            moved.push((part, sent));
        }
        for (part, sent) in moved.into_iter().rev() {
            match part.bytes() {
                Some(bytes) => self.push_spooled(&bytes[sent..])?,
                None => self.parts.push_back(part),
            }
        }
        Ok(())
    }

    fn push_spooled(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (file, offset) = SpoolFile::append(&mut self.spool, bytes)?;
        let bytes = bytes.len() as u64;
        self.file_bytes += bytes;
        if let Some(Part::File { file: last, offset: start, length }) = self.parts.back_mut()
            && Arc::ptr_eq(last, &file)
            && *start + *length == offset
        {
            *length += bytes;
        } else {
            self.parts.push_back(Part::File { file, offset, length: bytes });
        }
        Ok(())
    }

    /// Sends up to `quantum` bytes as far as the client takes them, and subtracts their number from `quantum`.
    ///
    /// # Errors
    /// The error of the connection, or `EPIPE` for a file that has become shorter than the announced length.
    pub(crate) fn flush(
        &mut self,
        socket: BorrowedFd<'_>,
        quantum: &mut usize,
    ) -> Result<FlushOutcome, Errno> {
        while let Some(first) = self.parts.front_mut() {
            if *quantum == 0 {
                return Ok(FlushOutcome::Quantum);
            }
            let sent = match first {
                Part::File { file, offset, length } => {
                    let sent = send_file(socket, file.as_fd(), offset, length, *quantum);
                    self.file_bytes -= sent.map_or(0, |sent| sent as u64);
                    sent
                }
                _ => self.send_bytes(socket, *quantum),
            };
            match sent {
                Ok(sent) => {
                    *quantum -= sent.min(*quantum);
                    self.left_bytes += sent as u64;
                }
                Err(Errno::AGAIN) => return Ok(FlushOutcome::Blocked),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
            if matches!(self.parts.front(), Some(Part::File { length: 0, .. })) {
                self.parts.pop_front();
            }
        }
        Ok(FlushOutcome::Done)
    }

    /// Removes and returns the next bytes of the first part, at most `most`. A file's bytes are read.
    ///
    /// # Errors
    /// A file cannot be read; `EPIPE` if a file has become shorter than the announced length.
    pub(crate) fn take(&mut self, most: usize) -> Result<Vec<u8>, Errno> {
        let Some(first) = self.parts.front_mut() else { return Ok(Vec::new()) };
        let piece = if let Part::File { file, offset, length } = first {
            let mut piece = vec![0; usize::try_from(*length).map_or(most, |all| all.min(most))];
            let read = read_file(file.as_fd(), &mut piece, *offset)?;
            piece.truncate(read);
            *offset += read as u64;
            *length -= read as u64;
            self.file_bytes -= read as u64;
            if *length == 0 {
                self.parts.pop_front();
            }
            piece
        } else {
            let bytes = &first.bytes().unwrap_or_default()[self.sent..];
            let piece = bytes[..bytes.len().min(most)].to_vec();
            self.forget(piece.len());
            piece
        };
        self.left_bytes += piece.len() as u64;
        Ok(piece)
    }

    /// Sends the parts in memory before the first file, as many as fit into one call.
    fn send_bytes(&mut self, socket: BorrowedFd<'_>, quantum: usize) -> Result<usize, Errno> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let (mut count, mut total, mut skip) = (0, 0, self.sent);
        for bytes in self.parts.iter().map_while(Part::bytes).take(SLICES_MAX) {
            let bytes = &bytes[skip..];
            let bytes = &bytes[..bytes.len().min(quantum - total)];
            slices[count] = IoSlice::new(bytes);
            (count, total, skip) = (count + 1, total + bytes.len(), 0);
            if total == quantum {
                break;
            }
        }
        let sent = gather(socket, &slices[..count], self.parts.len() > count)?;
        self.forget(sent);
        Ok(sent)
    }

    /// Removes `sent` bytes from the parts in memory.
    fn forget(&mut self, sent: usize) {
        self.sent += sent;
        while let Some(length) = self.parts.front().and_then(Part::bytes).map(<[u8]>::len)
            && self.sent >= length
        {
            self.sent -= length;
            self.memory_bytes -= length;
            self.parts.pop_front();
        }
    }
}

/// Reads bytes of a file that must have them.
///
/// # Errors
/// The error of the read; `EPIPE` at the end of the file.
fn read_file(file: BorrowedFd<'_>, to: &mut [u8], offset: u64) -> Result<usize, Errno> {
    loop {
        match pread(file, &mut *to, offset) {
            Ok(0) => return Err(Errno::PIPE),
            Err(Errno::INTR) => {}
            read => return read,
        }
    }
}

/// Sends `slices` in one call; `more` tells the kernel to hold a partial packet back.
pub(crate) fn gather(
    socket: BorrowedFd<'_>,
    slices: &[IoSlice<'_>],
    more: bool,
) -> Result<usize, Errno> {
    let flags = if more { SendFlags::NOSIGNAL | SendFlags::MORE } else { SendFlags::NOSIGNAL };
    match slices {
        [only] => send(socket, only, flags),
        many => sendmsg(socket, many, &mut SendAncillaryBuffer::default(), flags),
    }
}

/// Lets the kernel send up to `quantum` bytes of a file's range.
fn send_file(
    socket: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    offset: &mut u64,
    length: &mut u64,
    quantum: usize,
) -> Result<usize, Errno> {
    let most = usize::try_from(*length).map_or(quantum, |length| length.min(quantum));
    let sent = sendfile(socket, file, Some(offset), most)?;
    *length -= sent as u64;
    // The file ends before the announced length: only the end of the connection can tell the client.
    if sent == 0 { Err(Errno::PIPE) } else { Ok(sent) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    fn pair() -> (UnixStream, UnixStream) {
        let (server, client) = UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        (server, client)
    }

    fn file(bytes: &[u8]) -> Arc<OwnedFd> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        Arc::new(file.into())
    }

    #[test]
    fn parts_leave_in_order() {
        let (server, mut client) = pair();
        let mut output = Output::default();
        output.push(Part::Bytes(b"head ".to_vec()));
        output.push(Part::Shared(Box::new("shared ")));
        output.push(Part::Bytes(Vec::new()));
        output.push(Part::File { file: file(b"a file's middle"), offset: 2, length: 4 });
        output.push(Part::Bytes(b" end".to_vec()));
        assert_eq!(output.memory_bytes(), 16);
        let mut quantum = QUANTUM_BYTES;
        assert_eq!(output.flush(server.as_fd(), &mut quantum), Ok(FlushOutcome::Done));
        assert_eq!((quantum, output.memory_bytes()), (QUANTUM_BYTES - 20, 0));
        drop(server);
        let mut got = String::new();
        client.read_to_string(&mut got).unwrap();
        assert_eq!(got, "head shared file end");
    }

    #[test]
    fn a_quantum_ends_the_turn_and_nothing_is_lost() {
        let (server, mut client) = pair();
        let mut output = Output::default();
        output.push(Part::Bytes(vec![b'a'; 10]));
        output.push(Part::File { file: file(&[b'b'; 10]), offset: 0, length: 10 });
        for left in [13, 6] {
            let mut quantum = 7;
            assert_eq!(output.flush(server.as_fd(), &mut quantum), Ok(FlushOutcome::Quantum));
            assert_eq!(
                output.parts.iter().map(Part::left_bytes).sum::<u64>() as usize - output.sent,
                left
            );
        }
        assert_eq!(output.flush(server.as_fd(), &mut 7), Ok(FlushOutcome::Done));
        drop(server);
        let mut got = Vec::new();
        client.read_to_end(&mut got).unwrap();
        assert_eq!(got, b"aaaaaaaaaabbbbbbbbbb");
    }

    #[test]
    fn spooled_parts_are_sent_in_order() {
        let (server, mut client) = pair();
        let mut output = Output::default();
        output.push(Part::Bytes(b"head ".to_vec()));
        assert_eq!(output.flush(server.as_fd(), &mut 2), Ok(FlushOutcome::Quantum));
        output.push(Part::Shared(Box::new("one ")));
        output.push(Part::File { file: file(b"two "), offset: 0, length: 4 });
        output.push(Part::Bytes(b"three ".to_vec()));
        output.spool(7).unwrap();
        assert_eq!((output.memory_bytes(), output.file_bytes), (7, 10), "the last part alone");
        output.push(Part::Bytes(b"four ".to_vec()));
        output.spool(11).unwrap();
        assert_eq!((output.memory_bytes(), output.parts.len()), (7, 4), "one range of the file");
        output.spool(0).unwrap();
        assert_eq!((output.memory_bytes(), output.waiting_bytes()), (0, 22));
        output.push(Part::Bytes(b"end".to_vec()));
        assert_eq!(output.flush(server.as_fd(), &mut usize::MAX.clone()), Ok(FlushOutcome::Done));
        assert_eq!((output.waiting_bytes(), output.left_bytes()), (0, 27));
        drop(server);
        let mut got = String::new();
        client.read_to_string(&mut got).unwrap();
        assert_eq!(got, "head one two three four end");
    }

    #[test]
    fn many_short_pieces_are_few_parts() {
        let mut output = Output::default();
        (0..10_000).for_each(|_| output.push(Part::Bytes(vec![b'x'; 10])));
        assert_eq!(output.memory_bytes(), 100_000);
        assert!(output.parts.len() <= 7, "{} parts", output.parts.len());
    }

    #[test]
    fn a_slow_client_blocks_and_a_gone_one_is_an_error() {
        let (server, client) = pair();
        let mut output = Output::default();
        output.push(Part::Bytes(vec![0; 8 << 20]));
        assert_eq!(
            output.flush(server.as_fd(), &mut usize::MAX.clone()),
            Ok(FlushOutcome::Blocked)
        );
        assert!(output.memory_bytes() < 8 << 20);
        drop(client);
        assert_eq!(output.flush(server.as_fd(), &mut usize::MAX.clone()), Err(Errno::PIPE));
    }

    #[test]
    fn a_file_that_shrank_is_an_error_and_not_a_short_response() {
        let (server, _client) = pair();
        let mut output = Output::default();
        output.push(Part::File { file: file(b"short"), offset: 0, length: 10 });
        assert_eq!(output.flush(server.as_fd(), &mut usize::MAX.clone()), Err(Errno::PIPE));
    }
}
