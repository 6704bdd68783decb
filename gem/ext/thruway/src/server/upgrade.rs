//! The protocols to which a request may upgrade its connection.

use rb_sys::VALUE;
use thruway_http1::field::members;
use thruway_http1::{Request, Version};

use crate::ruby::{Gvl, Symbol};

/// The length of a key: 16 bytes in base64.
const KEY_BYTES: usize = 24;

/// The value of `rack.upgrade?`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Upgrade {
    WebSocket,
    Events,
}

impl Upgrade {
    /// The upgrade that the fields of a request ask for (RFC 6455, 4.2.1).
    pub(super) fn of(request: &Request<'_>) -> Option<Self> {
        let field = |name: &[u8]| {
            let mut fields = request.fields();
            fields.find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
        };
        // A list may be spread over several fields (RFC 9110, 5.3).
        let has = |name: &[u8], member: &[u8]| {
            let mut lists = request.fields().filter(|(other, _)| other.eq_ignore_ascii_case(name));
            lists.any(|(_, list)| members(list).any(|other| other.eq_ignore_ascii_case(member)))
        };
        if field(b"accept") == Some(b"text/event-stream") {
            return Some(Self::Events);
        }
        let is_websocket = has(b"upgrade", b"websocket")
            && has(b"connection", b"upgrade")
            && field(b"sec-websocket-version") == Some(b"13")
            && field(b"sec-websocket-key").is_some_and(|key| key.len() == KEY_BYTES);
        is_websocket.then_some(Self::WebSocket)
    }

    pub(super) fn to_symbol(self, gvl: Gvl) -> VALUE {
        let name = match self {
            Self::WebSocket => c"websocket",
            Self::Events => c"sse",
        };
        Symbol::new(gvl, name).value()
    }
}

/// Whether a request may be upgraded, apart from its fields.
pub(super) fn may_upgrade(request: &Request<'_>) -> bool {
    request.method() == b"GET" && request.version() != Version::Http10
}
