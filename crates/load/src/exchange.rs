//! What a connection's bytes turned out to be.

use crate::pending::PendingRequest;
use crate::tally::Trouble;

/// What the next bytes of a connection meant.
#[derive(Debug)]
pub(crate) struct Step {
    /// The place of the URL for which they count; without it they count for the client's first.
    pub(crate) url: Option<usize>,
    pub(crate) event: Event,
}

#[derive(Debug)]
pub(crate) enum Event {
    /// Nothing came to its end.
    Partial,
    /// A request has its response.
    Response(Answer),
    /// One request is lost, and the connection is not.
    Lost(PendingRequest, Trouble),
    /// The server takes no further request on this connection.
    Farewell,
    /// The client gets every broadcast from now on.
    Subscribed,
}

/// A response that came to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) request: PendingRequest,
    /// None where the protocol has no status.
    pub(crate) status: Option<u16>,
    /// Whether the connection can be used for nothing else.
    pub(crate) is_last: bool,
}

impl Step {
    /// Bytes that ended nothing, and belong to no request.
    pub(crate) fn partial() -> Self {
        Self { url: None, event: Event::Partial }
    }
}
