//! The right to respond to one request.

use crate::events::slab::EntryId;

/// The right to respond to one request, once. The response ends the right: the connection's next request has another
/// ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    pub(crate) connection: EntryId,
    /// The request's number, unique within the engine.
    pub(crate) request: u64,
}

/// A ticket's length in bytes.
pub const TICKET_BYTES: usize = 16;

impl Ticket {
    /// Converts the ticket to bytes, for a language that can keep nothing else.
    #[must_use]
    pub fn to_bytes(self) -> [u8; TICKET_BYTES] {
        let mut bytes = [0; TICKET_BYTES];
        bytes[..8].copy_from_slice(&self.connection.to_word().to_ne_bytes());
        bytes[8..].copy_from_slice(&self.request.to_ne_bytes());
        bytes
    }

    /// Converts bytes back to a ticket. Any bytes are safe: bytes that never were a ticket act like the ticket of a
    /// finished request.
    #[must_use]
    pub fn from_bytes(bytes: [u8; TICKET_BYTES]) -> Self {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_ne_bytes(word)
        };
        Self { connection: EntryId::from_word(word(0)), request: word(8) }
    }

    /// The request's number, unique within the engine.
    #[must_use]
    pub fn request(self) -> u64 {
        self.request
    }
}
