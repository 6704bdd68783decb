//! The kernel's reports on a socket.

/// The state of a socket by the kernel's reports. The kernel reports each change once.
#[derive(Debug)]
pub(crate) struct Readiness {
    /// Whether the socket may be readable.
    pub(crate) is_readable: bool,
    /// Whether the socket may be writable.
    pub(crate) is_writable: bool,
    /// Whether the client has closed its sending side.
    pub(crate) is_ended: bool,
}
