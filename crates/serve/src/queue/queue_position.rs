//! Where a request stands among those of its client.

use super::client_turns::Client;

/// Where a request stands among those of its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum QueuePosition {
    /// The client is not known yet, or it is the connection.
    #[default]
    Unknown,
    /// It is known, and the request is not ready.
    Known(Client),
    /// The request is the client's first: it is in the run queue.
    First(Client),
    /// It waits behind the first one, outside of the run queue.
    Parked(Client),
    /// It is not to be served: the server itself responds.
    TakenOut,
}
