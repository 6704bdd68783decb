//! Answers whose body is written piece by piece, and connections that leave the engine.

use std::os::fd::OwnedFd;

use thruway_http1::response::{CHUNK_END, CHUNKS_END, chunk_start};
use thruway_http1::{BodyPlan, ResponseFraming};

use crate::connection::{Connection, Payload, Phase, Stream};
use crate::connections::Connections;
use crate::exchange::Ticket;
use crate::output::QUANTUM_BYTES;
use crate::slab::ConnectionId;

/// What became of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Written {
    /// It is sent, or waits behind so many bytes: wait with the next piece while they are too many.
    Backlog(u64),
    /// It is beyond the length that was promised: the connection is reset, because what was promised is not
    /// what there is.
    Excess,
    /// The client is gone, or the request is over: whatever writes may as well stop.
    Gone,
}

impl Connections {
    /// Starts an answer: its head waits for the first piece, or for [`flush`](Self::flush).
    pub(crate) fn begin(&mut self, ticket: Ticket, head: &[u8], plan: BodyPlan) -> Written {
        let is_draining = self.is_draining;
        let Some(connection) = self.connection_of(ticket) else { return Written::Gone };
        if !matches!(connection.phase, Phase::Handling) {
            return Written::Gone;
        }
        connection.is_persistent = plan.is_persistent && !is_draining;
        let left = match plan.framing {
            ResponseFraming::Length(bytes) => bytes,
            _ => 0,
        };
        connection.phase = Phase::Streaming(Stream { framing: plan.framing, left });
        connection.hold(head);
        Written::Backlog(connection.backlog_bytes())
    }

    /// Sends a piece of the body, or keeps what the client does not take.
    pub(crate) fn write(&mut self, ticket: Ticket, piece: &[u8]) -> Written {
        let Some(connection) = self.connection_of(ticket) else { return Written::Gone };
        let Phase::Streaming(stream) = &mut connection.phase else { return Written::Gone };
        if !stream.takes(piece) {
            self.reset(ticket.connection);
            return Written::Excess;
        }
        if piece.is_empty() || stream.framing == ResponseFraming::Empty {
            return Written::Backlog(connection.backlog_bytes());
        }
        // As much as the client takes, so that the backlog does not grow before a fast one.
        let most = piece.len() + QUANTUM_BYTES;
        let flushed = if stream.framing == ResponseFraming::Chunked {
            let mut start = Vec::with_capacity(20);
            chunk_start(&mut start, piece.len());
            connection.deliver(&start, Payload::Slices(&[piece, CHUNK_END]), most)
        } else {
            connection.deliver(piece, Payload::Empty, most)
        };
        self.after_flush(ticket.connection, flushed);
        self.settle(ticket.connection);
        self.backlog(ticket.connection)
    }

    /// Sends what waits, as far as the client takes it.
    pub(crate) fn flush_stream(&mut self, ticket: Ticket) -> Written {
        if self.connection_of(ticket).is_none() {
            return Written::Gone;
        }
        self.flush(ticket.connection);
        self.settle(ticket.connection);
        self.backlog(ticket.connection)
    }

    /// Ends the body. One that is shorter than was promised resets the connection; how many bytes are
    /// missing.
    pub(crate) fn finish(&mut self, ticket: Ticket) -> u64 {
        let Some(connection) = self.connection_of(ticket) else { return 0 };
        let Phase::Streaming(Stream { framing, left }) = connection.phase else { return 0 };
        if left > 0 {
            self.reset(ticket.connection);
            return left;
        }
        connection.phase = Phase::Responding;
        if framing == ResponseFraming::Chunked {
            connection.hold(CHUNKS_END);
        }
        self.flush(ticket.connection);
        self.settle(ticket.connection);
        0
    }

    /// Ends the connection in the middle of an answer, so that the client cannot take it for whole.
    pub(crate) fn abort(&mut self, ticket: Ticket) {
        if self.connection_of(ticket).is_some() {
            self.reset(ticket.connection);
        }
    }

    /// Gives a connection away, with the bytes that were read from it and not understood.
    pub(crate) fn detach(&mut self, ticket: Ticket) -> Option<(OwnedFd, Vec<u8>)> {
        if self.connection_of(ticket)?.output.is_some() {
            return None;
        }
        let Connection { socket, input, .. } = self.close(ticket.connection)?;
        self.poller.remove(&socket);
        Some((socket, input))
    }

    fn backlog(&self, id: ConnectionId) -> Written {
        let connection = self.slab.get(id);
        connection.map_or(Written::Gone, |connection| Written::Backlog(connection.backlog_bytes()))
    }
}

impl Stream {
    /// Counts a piece; false if it is longer than what is left of the promised length.
    fn takes(&mut self, piece: &[u8]) -> bool {
        let ResponseFraming::Length(_) = self.framing else { return true };
        let left = self.left.checked_sub(piece.len() as u64);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }
}
