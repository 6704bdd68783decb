//! Splits the bytes of a connection into responses.
//!
//! No sockets are involved: [`ResponseReader::read`] takes pieces of any size.

mod chunked;
mod head;
mod other_protocol;
mod reader;

pub(crate) use head::end as head_end;
pub(crate) use reader::{HEAD_BYTES_MAX, ResponseReader};

/// A complete response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Response {
    /// Usually 200 to 599; never an interim status.
    pub(crate) status: u16,
    /// Whether the body has a content coding, such as gzip.
    pub(crate) is_encoded: bool,
    /// Whether the connection may be used for another request.
    pub(crate) keeps_alive: bool,
}

/// The bytes are not a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MalformedResponse;

/// The connection ended inside a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TruncatedResponse;
