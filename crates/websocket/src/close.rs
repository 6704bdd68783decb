//! The reasons for the end of a socket.

use std::fmt;

/// A status code of RFC 6455, section 7.4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CloseCode(u16);

impl CloseCode {
    /// The purpose of the connection is fulfilled.
    pub const NORMAL: Self = Self(1000);
    /// The server stops, or the client leaves the page.
    pub const GOING_AWAY: Self = Self(1001);
    /// A frame violates a rule.
    pub const PROTOCOL: Self = Self(1002);
    /// A close frame without a code. Never sent in a frame.
    pub const NONE: Self = Self(1005);
    /// The connection ended without a close frame. Never sent in a frame.
    pub const ABNORMAL: Self = Self(1006);
    /// A text is not UTF-8, or compressed bytes are malformed.
    pub const INVALID: Self = Self(1007);
    /// A message is longer than the limit.
    pub const TOO_BIG: Self = Self(1009);
    /// The application failed.
    pub const INTERNAL: Self = Self(1011);
    /// The server restarts, and the client should reconnect.
    pub const RESTART: Self = Self(1012);

    /// Creates a code from any number.
    #[must_use]
    pub fn new(code: u16) -> Self {
        Self(code)
    }

    /// Returns the number of the code.
    #[must_use]
    pub fn number(self) -> u16 {
        self.0
    }

    /// Whether a frame may contain the code: assigned codes, and those for libraries and applications.
    #[must_use]
    pub fn may_be_sent(self) -> bool {
        matches!(self.0, 1000..=1003 | 1007..=1014 | 3000..=4999)
    }
}

/// A client's violation, which ends its socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The code that is sent to the client.
    pub code: CloseCode,
    /// The reason that is sent to the client.
    pub reason: &'static str,
}

impl Fault {
    pub(crate) fn protocol(reason: &'static str) -> Self {
        Self { code: CloseCode::PROTOCOL, reason }
    }

    pub(crate) fn invalid(reason: &'static str) -> Self {
        Self { code: CloseCode::INVALID, reason }
    }

    pub(crate) fn too_big() -> Self {
        Self { code: CloseCode::TOO_BIG, reason: "the message is longer than the limit" }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} ({})", self.reason, self.code.0)
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_that_are_reserved_are_never_sent() {
        let sent = [1000, 1001, 1002, 1003, 1007, 1011, 1012, 1014, 3000, 3999, 4000, 4999];
        assert!(sent.into_iter().all(|code| CloseCode::new(code).may_be_sent()));
        let reserved = [0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535];
        assert!(!reserved.into_iter().any(|code| CloseCode::new(code).may_be_sent()));
    }
}
