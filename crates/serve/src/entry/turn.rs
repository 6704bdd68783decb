//! The place of a connection in the order of turns.

use crate::queue::queue_position::QueuePosition;

/// The times from which the key of a connection's next turn is computed, and the position of its request.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// When the last request was ready; zero before the first.
    pub(crate) asked_us: u64,
    /// When the last response was sent.
    pub(crate) responded_us: u64,
    /// Whether the client counted as infrequent at its last request.
    pub(crate) asks_seldom: bool,
    /// When the connection began to wait for a turn.
    pub(crate) ready_us: u64,
    /// When the connection began to wait for a turn in this worker.
    pub(crate) here_us: u64,
    /// The key in the run queue, while the connection is queued.
    pub(crate) key_us: u64,
    /// The position of the request among the client's requests.
    pub(crate) position: QueuePosition,
}
