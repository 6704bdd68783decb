//! Responses, and the ways that they go.

use std::fmt;

use thruway_fuse::Answer;

/// Whether a request has its response now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The response goes back.
    Answered,
    /// The kernel expects none.
    Silent,
    /// The response comes later, from elsewhere.
    Later,
}

/// Takes a response to where its request came from, from any thread.
pub(crate) trait Replier: Send + Sync + fmt::Debug {
    /// Sends it. A connection that is gone needs no response.
    fn reply(&self, unique: u64, answer: &mut Answer);
}
