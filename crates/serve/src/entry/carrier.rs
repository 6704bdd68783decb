//! The carrier of a request: a socket, or a stream of a connection that speaks HTTP/2.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::Shutdown;
use thruway_http2::Stream;
use thruway_tls::Session;

use crate::events::slab::EntryId;
use crate::output::{FlushOutcome, Output};

/// Bytes of a body that are handed to a stream at once.
const PIECE_BYTES: usize = 64 << 10;

/// The carrier of a request.
#[derive(Debug)]
pub(crate) enum Carrier {
    Socket(Socket),
    /// A stream of an HTTP/2 connection, for one request.
    Stream(Box<StreamLink>),
    /// No client waits for the response: the cache sent the request after it had served a stale response.
    Nobody {
        is_tls: bool,
    },
}

/// A socket, and its TLS session if the client speaks TLS and its handshake has begun.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) fd: OwnedFd,
    pub(crate) session: Option<Box<Session>>,
}

impl Socket {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self { fd, session: None }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// An HTTP/2 stream and its connection.
#[derive(Debug)]
pub(crate) struct StreamLink {
    pub(crate) parent: EntryId,
    pub(crate) stream: Stream,
    /// Bytes of the request's body received so far.
    pub(crate) received_bytes: u64,
    /// The head of the response, until it is sent.
    head: Vec<u8>,
}

impl Carrier {
    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Socket(socket) => Some(socket.as_fd()),
            Self::Stream(_) | Self::Nobody { .. } => None,
        }
    }

    /// Shuts down the socket, or one of its directions. A failure means that the client is gone, and the next read
    /// reports the same.
    pub(crate) fn shut(&self, how: Shutdown) {
        if let Some(socket) = self.socket() {
            let _ = rustix::net::shutdown(socket, how);
        }
    }

    /// The TLS session of a socket that has one.
    pub(crate) fn session_mut(&mut self) -> Option<&mut Session> {
        match self {
            Self::Socket(socket) => socket.session.as_deref_mut(),
            Self::Stream(_) | Self::Nobody { .. } => None,
        }
    }

    pub(crate) fn into_socket(self) -> Option<Socket> {
        match self {
            Self::Socket(socket) => Some(socket),
            Self::Stream(_) | Self::Nobody { .. } => None,
        }
    }

    pub(crate) fn stream(&self) -> Option<&StreamLink> {
        match self {
            Self::Socket(_) | Self::Nobody { .. } => None,
            Self::Stream(link) => Some(link),
        }
    }

    pub(crate) fn stream_mut(&mut self) -> Option<&mut StreamLink> {
        match self {
            Self::Socket(_) | Self::Nobody { .. } => None,
            Self::Stream(link) => Some(link),
        }
    }
}

impl StreamLink {
    pub(crate) fn new(parent: EntryId, stream: Stream) -> Self {
        Self { parent, stream, received_bytes: 0, head: Vec::new() }
    }

    /// Keeps the response's head, if `bytes` begin with the head, and returns the rest, which belongs to the body.
    pub(crate) fn take_head<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        if self.stream.has_responded() || !self.head.is_empty() {
            return bytes;
        }
        let (head, body) = bytes.split_at(Stream::head_bytes(bytes));
        self.head = head.to_vec();
        body
    }

    /// Whether the request may become a connection of its own: a WebSocket, or else a stream of events.
    pub(crate) fn may_become(&self, is_websocket: bool) -> bool {
        self.stream.opens_websocket() == is_websocket
    }

    /// Ends the upgraded request. A reset tells the client if the end is not orderly or no response was sent.
    pub(crate) fn end(&mut self, is_orderly: bool) {
        if is_orderly && self.stream.has_responded() {
            self.stream.send(Vec::new(), true);
        } else {
            self.stream.reset();
        }
    }

    /// Whether no part of the response has been sent.
    pub(crate) fn is_fresh(&self) -> bool {
        self.head.is_empty() && !self.stream.has_responded()
    }

    /// Sends waiting output as far as the client's windows allow, at most `most` bytes. If `is_complete`, the response
    /// ends with the last byte.
    ///
    /// # Errors
    /// The stream is gone, or a file has become shorter than the announced length.
    pub(crate) fn feed(
        &mut self,
        output: &mut Option<Box<Output>>,
        is_complete: bool,
        mut most: usize,
    ) -> Result<FlushOutcome, Errno> {
        let is_empty = |output: &Option<Box<Output>>| {
            output.as_ref().is_none_or(|output| output.waiting_bytes() == 0)
        };
        if !self.head.is_empty() {
            let head = std::mem::take(&mut self.head);
            if !self.stream.respond(&head, is_complete && is_empty(output)) {
                return Err(Errno::PIPE);
            }
        }
        while let Some(waiting) = output.as_mut().filter(|waiting| waiting.waiting_bytes() > 0) {
            if most == 0 {
                return Ok(FlushOutcome::Quantum);
            }
            let wanted = usize::try_from(waiting.waiting_bytes()).unwrap_or(PIECE_BYTES);
            let room = self.stream.room_bytes(wanted.min(PIECE_BYTES).min(most));
            let piece = match room {
                None => return Err(Errno::PIPE),
                Some(0) => return Ok(FlushOutcome::Blocked),
                Some(room) => waiting.take(room)?,
            };
            most -= piece.len();
            let is_last = is_complete && waiting.waiting_bytes() == 0;
            self.stream.send(piece, is_last);
        }
        *output = None;
        if is_complete && !self.stream.is_whole() {
            self.stream.send(Vec::new(), true);
        }
        Ok(FlushOutcome::Done)
    }
}
