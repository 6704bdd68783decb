//! Responses out of the bytes of one connection: where each ends, and what it said.
//!
//! No sockets here: [`ResponseReader::read`] takes whatever bytes came, in pieces of any size.

mod chunked;
mod head;
mod reader;

pub(crate) use head::end as head_end;
pub(crate) use reader::{HEAD_BYTES_MAX, ResponseReader};

/// A response that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Response {
    /// 200 to 599 as a rule; never an interim one.
    pub(crate) status: u16,
    /// Whether the connection may be used for another request.
    pub(crate) keeps_alive: bool,
}

/// The bytes are not a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The connection ended inside a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Truncated;
