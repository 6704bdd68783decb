//! The position of a request among those of its client.

use super::client_turns::Client;

/// The position of a request among those of its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum QueuePosition {
    /// The client is not known yet, or the connection is the client.
    #[default]
    Unknown,
    /// The client is known, but the request is not ready.
    Known(Client),
    /// The request is the client's first, and in the run queue.
    First(Client),
    /// The request waits behind the client's first, outside the run queue.
    Parked(Client),
    /// The request will not be served by a handler: the server itself responds.
    Withdrawn,
}
