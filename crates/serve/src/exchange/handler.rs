//! The handler of requests, and the exchange through which a handler responds.

use std::io;

use thruway_http1::Request;
use thruway_http1::date::DATE_BYTES;
use thruway_http1::response::ResponseConstraints;

use crate::entry::Entry;
use crate::entry::carrier::Carrier;
use crate::entry::socket_state::SocketEvent;
use crate::entry::ticket::Ticket;
use crate::entry::upload::Body;
use crate::exchange::response::{Response, ResponseWriter};
use crate::listen::listener::Peer;

/// Responds to requests.
pub trait Handler {
    /// Responds to `request` through `exchange`, or takes a ticket to respond later. If the handler does neither, the
    /// client gets a 500.
    fn handle(&mut self, request: &Request<'_>, exchange: &mut Exchange<'_>);

    /// Handles an event of an upgraded connection. The connection's next event follows only after a call of
    /// [`SocketWriter::done`](crate::SocketWriter::done).
    fn socket_event(&mut self, _ticket: Ticket, _event: SocketEvent) {}

    /// Whether the handler wants the bodies of requests. Unwanted bodies are discarded as they arrive.
    fn wants_body(&self) -> bool {
        true
    }

    /// Whether the handler can take requests now. If not, requests wait.
    fn is_present(&self) -> bool {
        true
    }
}

/// The absence of a handler: requests wait.
pub(crate) struct Absent;

impl Handler for Absent {
    fn handle(&mut self, _request: &Request<'_>, _exchange: &mut Exchange<'_>) {}

    fn is_present(&self) -> bool {
        false
    }
}

/// A request that waits for its response.
#[derive(Debug)]
pub struct Exchange<'a> {
    pub(crate) writer: ResponseWriter<'a>,
    pub(crate) constraints: ResponseConstraints,
    pub(crate) peer: Peer,
    pub(crate) is_https: bool,
    pub(crate) listener: u16,
    pub(crate) body: Body,
    pub(crate) is_taken: bool,
}

impl Exchange<'_> {
    /// Returns the limits that the request sets for its response.
    #[must_use]
    pub fn constraints(&self) -> ResponseConstraints {
        self.constraints
    }

    /// Whether a trusted proxy reports that the client speaks TLS.
    #[must_use]
    pub fn is_https(&self) -> bool {
        self.is_https
    }

    /// Returns the client's address.
    #[must_use]
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Whether the client speaks TLS with this server.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        let is_tls = |connection: &Entry| match connection.carrier {
            Carrier::Nobody { is_tls } => is_tls,
            Carrier::Socket(_) | Carrier::Stream(_) => connection.session().is_some(),
        };
        self.connection().is_some_and(is_tls)
    }

    /// Returns the certificate that the client has presented, in DER.
    #[must_use]
    pub fn peer_certificate(&self) -> Option<&[u8]> {
        self.connection()?.session()?.peer_certificate()
    }

    /// Returns the connection of the request. A stream shares its connection with other streams.
    fn connection(&self) -> Option<&Entry> {
        let slab = &self.writer.store.slab;
        let connection = slab.get(self.writer.ticket.connection)?;
        match connection.carrier.stream() {
            None => Some(connection),
            Some(link) => slab.get(link.parent),
        }
    }

    /// Returns the index of the listener that the connection came from.
    #[must_use]
    pub fn listener(&self) -> usize {
        usize::from(self.listener)
    }

    /// Takes the request's body; a second call returns an empty body.
    pub fn take_body(&mut self) -> Body {
        std::mem::replace(&mut self.body, Body::empty())
    }

    /// Returns the date for the response.
    pub fn date(&mut self) -> [u8; DATE_BYTES] {
        self.writer.date()
    }

    /// Sends the response.
    pub fn respond(&mut self, response: Response<'_>) {
        self.is_taken = true;
        self.writer.respond(response);
    }

    /// Sends a response of plain text: the status, its phrase and `text`.
    pub fn respond_text(&mut self, status: u16, text: &str) {
        self.is_taken = true;
        self.writer.respond_text(self.constraints, status, text);
    }

    /// Records a failure for the log; `doing` completes "cannot …".
    pub fn warn(&mut self, doing: &'static str, source: impl Into<io::Error>) {
        self.writer.store.warn(doing, source);
    }

    /// Takes a ticket with which the response can be written later.
    pub fn defer(&mut self) -> Ticket {
        self.is_taken = true;
        self.writer.ticket
    }
}
