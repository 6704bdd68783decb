//! The limits of a request.

/// Limits of one request. A request beyond one of them is refused with the limit's own status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Method, target and version, with the spaces between them. Beyond it: 414.
    pub request_line_bytes_max: usize,
    /// The whole head, from the request line to the empty line. Beyond it: 431.
    pub head_bytes_max: usize,
    /// Fields of the head, at most [`FIELDS_MAX`](Self::FIELDS_MAX). Beyond it: 431.
    pub fields_max: usize,
    /// The body after its framing is taken away. Beyond it: 413.
    pub body_bytes_max: u64,
    /// All chunk extensions of one body together, which are ignored. Beyond it: 400.
    pub chunk_extension_bytes_max: usize,
    /// The trailer fields of one body together. Beyond it: 431.
    pub trailer_bytes_max: usize,
}

impl Limits {
    /// No head has more fields than this, whatever `fields_max` says: the parser's room for them
    /// lies on the stack.
    pub const FIELDS_MAX: usize = 128;
}

impl Default for Limits {
    /// nginx's sizes for the head; a body of 1 GiB, which still fits on most disks.
    fn default() -> Self {
        Self {
            request_line_bytes_max: 8 << 10,
            head_bytes_max: 32 << 10,
            fields_max: 100,
            body_bytes_max: 1 << 30,
            chunk_extension_bytes_max: 4 << 10,
            trailer_bytes_max: 8 << 10,
        }
    }
}
