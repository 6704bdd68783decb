//! What a connection speaks, and what it has pending.

use crate::broadcast::Marker;
use crate::exchange::{Event, Step};
use crate::http1::Http1;
use crate::http2::Http2;
use crate::pending::PendingRequest;
use crate::plan::{Plan, Protocol};
use crate::run_context::Prepared;
use crate::tally::Trouble;
use crate::websocket::WebSocket;

#[derive(Debug)]
pub(crate) enum Conversation {
    Http1(Http1),
    Http2(Box<Http2>),
    WebSocket(Box<WebSocket>),
}

impl Conversation {
    /// One of the plan, with up to `depth` requests pending.
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

    /// Whether there is to be a connection.
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

    /// Takes all that is pending.
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

    /// A new connection begins: everything has to be sent again.
    pub(crate) fn restart(&mut self, requests: &[Prepared]) {
        match self {
            Self::Http1(http1) => http1.restart(),
            Self::Http2(http2) => http2.restart(),
            Self::WebSocket(socket) => socket.restart(&requests[0].bytes),
        }
    }

    /// Writes what is asked, as far as the server allows it.
    pub(crate) fn prepare(&mut self, requests: &[Prepared], now_ns: u64) {
        match self {
            Self::Http1(_) => {}
            Self::Http2(http2) => http2.prepare(requests, now_ns),
            Self::WebSocket(socket) => socket.prepare(),
        }
    }

    /// Whether there is anything left to send.
    pub(crate) fn is_unsent(&self) -> bool {
        match self {
            Self::Http1(http1) => http1.pending().is_unsent(),
            Self::Http2(http2) => !http2.unsent().is_empty(),
            Self::WebSocket(socket) => !socket.unsent().is_empty(),
        }
    }

    /// What can be sent at once.
    pub(crate) fn unsent<'a>(&'a self, requests: &'a [Prepared]) -> &'a [u8] {
        match self {
            Self::Http1(http1) => http1.unsent(requests),
            Self::Http2(http2) => http2.unsent(),
            Self::WebSocket(socket) => socket.unsent(),
        }
    }

    /// So much of that was sent.
    pub(crate) fn count_sent(&mut self, bytes: usize, requests: &[Prepared]) {
        match self {
            Self::Http1(http1) => http1.count_sent(bytes, requests),
            Self::Http2(http2) => http2.count_sent(bytes),
            Self::WebSocket(socket) => socket.count_sent(bytes),
        }
    }

    /// How many bytes are still to come at which nothing looks, where that is known.
    pub(crate) fn body_bytes_left(&self) -> u64 {
        if let Self::Http1(http1) = self { http1.body_bytes_left() } else { 0 }
    }

    /// Takes bytes up to the next event, or all of them.
    pub(crate) fn read(
        &mut self,
        bytes: &mut &[u8],
        requests: &[Prepared],
    ) -> Result<Step, Trouble> {
        match self {
            Self::Http1(http1) => http1.read(bytes),
            Self::Http2(http2) => http2.read(bytes, requests),
            Self::WebSocket(socket) => socket.read(bytes),
        }
    }

    /// The server closed.
    pub(crate) fn close(&mut self) -> Result<Event, Trouble> {
        match self {
            Self::Http1(http1) => http1.close(),
            Self::Http2(http2) => http2.close(),
            Self::WebSocket(socket) => socket.close(),
        }
    }

    /// A request that waits too long while others are answered, and is given up alone.
    pub(crate) fn expire(&mut self, now_ns: u64, timeout_ns: u64) -> Option<PendingRequest> {
        if let Self::Http2(http2) = self { http2.expire(now_ns, timeout_ns) } else { None }
    }

    /// How many responses each stream had.
    pub(crate) fn served(&self) -> &[u64] {
        if let Self::Http2(http2) = self { http2.served() } else { &[] }
    }

    pub(crate) fn websocket(&mut self) -> Option<&mut WebSocket> {
        if let Self::WebSocket(socket) = self { Some(socket) } else { None }
    }
}
