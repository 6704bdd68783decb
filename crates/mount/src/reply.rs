//! Answers that come later than their request's turn.

use std::fmt;

use thruway_fuse::Answer;

/// Takes an answer to where its request came from, from any thread.
pub(crate) trait Replier: Send + Sync + fmt::Debug {
    /// Sends it. A connection that is gone needs no answer.
    fn reply(&self, unique: u64, answer: &mut Answer);
}
