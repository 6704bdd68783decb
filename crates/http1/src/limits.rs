//! The limits of a request.

/// Limits on a request. A request that exceeds a limit is refused with the status given for the limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The length of method, target and version, including spaces. Status 414.
    pub request_line_bytes_max: usize,
    /// The length of the head, from the request line to the empty line. Status 431.
    pub head_bytes_max: usize,
    /// The number of fields in the head, at most [`FIELDS_MAX`](Self::FIELDS_MAX). Status 431.
    pub fields_max: usize,
    /// The length of the body without its framing. Status 413.
    pub body_bytes_max: u64,
    /// The total length of all chunk extensions of a body, which are ignored. Status 400.
    pub chunk_extension_bytes_max: usize,
    /// The total length of the trailer fields of a body. Status 431.
    pub trailer_bytes_max: usize,
}

impl Limits {
    /// The maximum of `fields_max`, since the parser's memory for fields is on the stack.
    pub const FIELDS_MAX: usize = 128;
}

impl Default for Limits {
    /// nginx's sizes for the head, and a body of 1 GiB, which fits on most disks.
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
