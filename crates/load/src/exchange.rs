//! Events on a connection.

use crate::pending::PendingRequest;
use crate::tally::FailureKind;

/// The meaning of the latest bytes of a connection.
#[derive(Debug)]
pub(crate) struct Step {
    /// The index of the URL for which the bytes count; `None` if they count for the client's first URL.
    pub(crate) url: Option<usize>,
    pub(crate) event: Event,
}

#[derive(Debug)]
pub(crate) enum Event {
    /// Nothing is complete yet.
    Partial,
    /// A request received its response.
    Response(Answer),
    /// A request was lost, but the connection continues.
    Lost(PendingRequest, FailureKind),
    /// The server takes no further requests on this connection.
    Farewell,
    /// The client receives every broadcast from now on.
    Subscribed,
}

/// A complete response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) request: PendingRequest,
    /// The status; `None` if the protocol has none.
    pub(crate) status: Option<u16>,
    /// Whether the body has a content coding, such as gzip.
    pub(crate) is_encoded: bool,
    /// Whether the connection cannot be used further.
    pub(crate) is_last: bool,
}

impl Step {
    /// Creates a step for bytes that complete nothing and belong to no request.
    pub(crate) fn partial() -> Self {
        Self { url: None, event: Event::Partial }
    }
}
