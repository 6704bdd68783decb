//! A request in the hands of its handler.

use std::io;

use thruway_http1::date::DATE_BYTES;
use thruway_http1::response::ResponseConstraints;
use thruway_http1::{BodyPlan, Request, ResponseHead};

use crate::connection::Payload;
use crate::connections::Connections;
use crate::listener::Peer;
use crate::slab::ConnectionId;
use crate::upload::Body;

/// Answers requests.
pub trait Handler {
    /// Answers `request` through `exchange`, or takes a ticket to answer it later. A request that
    /// gets neither is answered with 500.
    fn handle(&mut self, request: &Request<'_>, exchange: &mut Exchange<'_>);

    /// Whether the bodies of requests are wanted; otherwise they are thrown away as they come.
    fn wants_body(&self) -> bool {
        true
    }

    /// Whether it can take requests now; otherwise they wait until it can.
    fn is_present(&self) -> bool {
        true
    }
}

/// The right to answer one request, once. It ends with the request's answer: the next request of the
/// same connection has another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    pub(crate) connection: ConnectionId,
    /// The request's number, which no other request of the engine ever has.
    pub(crate) request: u64,
}

/// A ticket's length in bytes, for those who can keep nothing else.
pub const TICKET_BYTES: usize = 16;

impl Ticket {
    /// The ticket as bytes, for those who can keep nothing else.
    #[must_use]
    pub fn to_bytes(self) -> [u8; TICKET_BYTES] {
        let mut bytes = [0; TICKET_BYTES];
        bytes[..8].copy_from_slice(&self.connection.to_word().to_ne_bytes());
        bytes[8..].copy_from_slice(&self.request.to_ne_bytes());
        bytes
    }

    /// The ticket that became bytes. Any bytes are safe: those that were never a ticket are as good as
    /// one whose request is over.
    #[must_use]
    pub fn from_bytes(bytes: [u8; TICKET_BYTES]) -> Self {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_ne_bytes(word)
        };
        Self { connection: ConnectionId::from_word(word(0)), request: word(8) }
    }

    /// The request's number: an engine's requests have different ones.
    #[must_use]
    pub fn request(self) -> u64 {
        self.request
    }
}

/// An answer that is ready to be sent.
#[derive(Debug)]
pub struct Response<'a> {
    /// What a [`ResponseHead`] has written.
    pub head: &'a [u8],
    /// What it promised.
    pub plan: BodyPlan,
    /// The body, as long as was promised; it is not sent where there must not be one.
    pub payload: Payload<'a>,
}

/// A request that waits for its answer.
#[derive(Debug)]
pub struct Exchange<'a> {
    pub(crate) connections: &'a mut Connections,
    pub(crate) ticket: Ticket,
    pub(crate) constraints: ResponseConstraints,
    pub(crate) peer: Peer,
    pub(crate) listener: u16,
    pub(crate) body: Body,
    pub(crate) is_taken: bool,
}

impl Exchange<'_> {
    /// What the request allows its answer to be.
    #[must_use]
    pub fn constraints(&self) -> ResponseConstraints {
        self.constraints
    }

    /// Who asked.
    #[must_use]
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// The place of the listener that the connection came from.
    #[must_use]
    pub fn listener(&self) -> usize {
        usize::from(self.listener)
    }

    /// The request's body; empty the second time.
    pub fn take_body(&mut self) -> Body {
        std::mem::replace(&mut self.body, Body::empty())
    }

    /// The date for the answer.
    pub fn date(&mut self) -> [u8; DATE_BYTES] {
        self.connections.date()
    }

    /// Sends the answer.
    pub fn respond(&mut self, response: Response<'_>) {
        self.is_taken = true;
        self.connections.respond(self.ticket, response);
    }

    /// Sends an answer of plain text: the status, its phrase and `text`.
    pub fn respond_text(&mut self, status: u16, text: &str) {
        self.is_taken = true;
        self.connections.respond_text(self.ticket, self.constraints, status, text);
    }

    /// Notes what cannot be done, for the log; `doing` completes "cannot …".
    pub fn warn(&mut self, doing: &'static str, source: impl Into<io::Error>) {
        self.connections.warn(doing, source);
    }

    /// Takes the right to answer later.
    pub fn defer(&mut self) -> Ticket {
        self.is_taken = true;
        self.ticket
    }
}

/// A short answer of plain text, head and body, at the end of `out`.
pub(crate) fn text_response(
    out: &mut Vec<u8>,
    constraints: ResponseConstraints,
    status: u16,
    text: &str,
    date: &[u8; DATE_BYTES],
) -> (BodyPlan, usize) {
    let body = format!("{status} {}: {text}\n", thruway_http1::response::reason(status));
    let mut head = ResponseHead::new(out, status);
    // Both are constants without control characters.
    let _ = head.field(b"content-type", b"text/plain; charset=utf-8");
    if status == 405 {
        let _ = head.field(b"allow", b"GET, HEAD, OPTIONS");
    }
    let plan = head.finish(constraints, Some(body.len() as u64), date);
    let head_bytes = out.len();
    out.extend_from_slice(body.as_bytes());
    (plan, head_bytes)
}
