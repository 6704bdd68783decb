//! Replies, and the ways that they go.

use std::fmt;

use thruway_fuse::Reply;

/// Whether a request has its reply now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The reply is ready to be sent.
    Replied,
    /// The kernel expects none.
    Silent,
    /// The reply comes later, from another thread.
    Later,
}

/// Sends a reply to where its request came from, from any thread.
pub(crate) trait ReplySender: Send + Sync + fmt::Debug {
    /// Sends it. A connection that is gone needs no reply.
    fn send(&self, unique: u64, reply: &mut Reply);
}
