//! The bytes of a client that no request has taken yet.

/// Bytes that were read and not yet parsed.
#[derive(Debug, Default)]
pub(crate) struct Input {
    pub(crate) bytes: Vec<u8>,
    /// The length of the prefix that was already searched for the end of a head.
    pub(crate) searched: usize,
    /// Whether the bytes begin with a whole head, which waits for a thread with a handler.
    pub(crate) has_head: bool,
}

impl Input {
    /// Whether there are bytes behind those that were searched for the end of a head.
    pub(crate) fn is_unsearched(&self) -> bool {
        self.searched < self.bytes.len()
    }
}
