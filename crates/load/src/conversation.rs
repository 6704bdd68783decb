//! The protocol of a connection, with its pending requests.

use crate::broadcast::Marker;
use crate::exchange::{Event, Step};
use crate::http1::Http1;
use crate::http2::Http2;
use crate::pending::PendingRequest;
use crate::plan::{Plan, Protocol};
use crate::run_context::PreparedRequest;
use crate::tally::FailureKind;
use crate::websocket::WebSocket;

#[derive(Debug)]
pub(crate) enum Conversation {
    Http1(Http1),
    Http2(Box<Http2>),
    WebSocket(Box<WebSocket>),
}

impl Conversation {
    /// Creates the plan's protocol with up to `depth` pending requests.
    pub(crate) fn new(plan: &Plan, depth: usize, marker: &Marker) -> Self {
        let request = &plan.urls[0].request;
        let keeps_alive = request.keeps_alive();
        match &plan.protocol {
            Protocol::Http1 => Self::Http1(Http1::new(depth, request.is_head(), keeps_alive)),
            Protocol::Http2 => Self::Http2(Box::new(Http2::new(depth, keeps_alive))),
            Protocol::WebSocket(messages) => {
                Self::WebSocket(Box::new(WebSocket::new(messages, marker.clone())))
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Http1(http1) => http1.pending().len(),
            Self::Http2(http2) => http2.len(),
            Self::WebSocket(socket) => socket.len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn oldest(&self) -> Option<PendingRequest> {
        match self {
            Self::Http1(http1) => http1.pending().oldest(),
            Self::Http2(http2) => http2.iter().next().copied(),
            Self::WebSocket(socket) => socket.iter().next().copied(),
        }
    }

    /// Whether a connection is needed.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.is_empty() || matches!(self, Self::WebSocket(socket) if socket.is_broadcast())
    }

    pub(crate) fn push(&mut self, request: PendingRequest) {
        match self {
            Self::Http1(http1) => http1.push(request),
            Self::Http2(http2) => http2.push(request),
            Self::WebSocket(socket) => socket.push(request),
        }
    }

    /// Takes all pending requests.
    pub(crate) fn take(&mut self) -> Vec<PendingRequest> {
        match self {
            Self::Http1(http1) => {
                let taken = http1.pending().iter().copied().collect();
                http1.clear();
                taken
            }
            Self::Http2(http2) => {
                let taken = http2.iter().copied().collect();
                http2.clear();
                taken
            }
            Self::WebSocket(socket) => {
                let taken = socket.iter().copied().collect();
                socket.clear();
                taken
            }
        }
    }

    /// Prepares for a new connection, on which everything has to be sent again.
    pub(crate) fn restart(&mut self, requests: &[PreparedRequest]) {
        match self {
            Self::Http1(http1) => http1.restart(),
            Self::Http2(http2) => http2.restart(),
            Self::WebSocket(socket) => socket.restart(&requests[0].bytes),
        }
    }

    /// Encodes requests, as far as the server's limits allow.
    pub(crate) fn prepare(&mut self, requests: &[PreparedRequest], now_ns: u64) {
        match self {
            Self::Http1(_) => {}
            Self::Http2(http2) => http2.prepare(requests, now_ns),
            Self::WebSocket(socket) => socket.prepare(),
        }
    }

    /// Whether there are bytes left to send.
    pub(crate) fn is_unsent(&self) -> bool {
        match self {
            Self::Http1(http1) => http1.pending().is_unsent(),
            Self::Http2(http2) => !http2.unsent().is_empty(),
            Self::WebSocket(socket) => !socket.unsent().is_empty(),
        }
    }

    /// Returns the bytes that can be sent at once.
    pub(crate) fn unsent<'a>(&'a self, requests: &'a [PreparedRequest]) -> &'a [u8] {
        match self {
            Self::Http1(http1) => http1.unsent(requests),
            Self::Http2(http2) => http2.unsent(),
            Self::WebSocket(socket) => socket.unsent(),
        }
    }

    /// Records that this many bytes were sent.
    pub(crate) fn count_sent(&mut self, bytes: usize, requests: &[PreparedRequest]) {
        match self {
            Self::Http1(http1) => http1.count_sent(bytes, requests),
            Self::Http2(http2) => http2.count_sent(bytes),
            Self::WebSocket(socket) => socket.count_sent(bytes),
        }
    }

    /// Returns the number of body bytes to come that need no examination; 0 if unknown.
    pub(crate) fn body_bytes_left(&self) -> u64 {
        if let Self::Http1(http1) = self { http1.body_bytes_left() } else { 0 }
    }

    /// Reads up to the next event, or all bytes.
    pub(crate) fn read(
        &mut self,
        bytes: &mut &[u8],
        requests: &[PreparedRequest],
    ) -> Result<Step, FailureKind> {
        match self {
            Self::Http1(http1) => http1.read(bytes),
            Self::Http2(http2) => http2.read(bytes, requests),
            Self::WebSocket(socket) => socket.read(bytes),
        }
    }

    /// Handles the end of the connection.
    pub(crate) fn close(&mut self) -> Result<Event, FailureKind> {
        match self {
            Self::Http1(http1) => http1.close(),
            Self::Http2(http2) => http2.close(),
            Self::WebSocket(socket) => socket.close(),
        }
    }

    /// Gives up a request that has waited too long while others were answered.
    pub(crate) fn expire(&mut self, now_ns: u64, timeout_ns: u64) -> Option<PendingRequest> {
        if let Self::Http2(http2) = self { http2.expire(now_ns, timeout_ns) } else { None }
    }

    /// Whether the connection has nothing of the response to its oldest request. Only HTTP/1 can tell; HTTP/2
    /// says by GOAWAY which requests it has not read.
    pub(crate) fn is_between_responses(&self) -> bool {
        matches!(self, Self::Http1(http1) if http1.is_between_responses())
    }

    /// Describes what the server speaks instead of the protocol, as far as that is known.
    pub(crate) fn other_protocol(&self) -> Option<String> {
        if let Self::Http1(http1) = self { http1.other_protocol() } else { None }
    }

    /// Forgets how many responses each stream had.
    pub(crate) fn forget_served(&mut self) {
        if let Self::Http2(http2) = self {
            http2.forget_served();
        }
    }

    /// The number of responses for each stream.
    pub(crate) fn served(&self) -> &[u64] {
        if let Self::Http2(http2) = self { http2.served() } else { &[] }
    }

    pub(crate) fn websocket(&mut self) -> Option<&mut WebSocket> {
        if let Self::WebSocket(socket) = self { Some(socket) } else { None }
    }
}
