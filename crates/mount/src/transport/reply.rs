//! The outcome of requests, and the interface for sending replies.

use std::fmt;

use thruway_fuse::Reply;

/// The state of a request's reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The reply is ready to be sent.
    Replied,
    /// The kernel expects no reply.
    Silent,
    /// Another thread sends the reply later.
    Later,
}

/// Sends replies to the origin of their requests, from any thread.
pub(crate) trait ReplySender: Send + Sync + fmt::Debug {
    /// Sends a reply. Errors are ignored, since a connection that is gone needs no reply.
    fn send(&self, unique: u64, reply: &mut Reply);
}
