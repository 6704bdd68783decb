//! Recognizes what a server speaks instead of HTTP/1.

use thruway_sys::printable;

/// The most bytes of a response that are shown.
const SHOWN_BYTES_MAX: usize = 40;

/// Describes a response by its first bytes; `None` if they are HTTP/1, or if there are none.
pub(super) fn described(beginning: &[u8]) -> Option<String> {
    match beginning {
        [] => None,
        _ if beginning.starts_with(b"HTTP/1.") || b"HTTP/1.".starts_with(beginning) => None,
        // A record of an alert or of a handshake (RFC 8446, section 5.1).
        [0x15 | 0x16, 3, ..] => Some("the server speaks TLS".to_owned()),
        // The settings with which a server of HTTP/2 begins (RFC 9113, section 3.4), or its farewell.
        [0, _, _, 4 | 7, _, 0, 0, 0, 0, ..] => Some("the server speaks HTTP/2".to_owned()),
        _ => {
            let line = beginning.split(|byte| *byte == b'\n').next().unwrap_or_default();
            let line = line.trim_ascii_end();
            let shown = printable::bytes(&line[..line.len().min(SHOWN_BYTES_MAX)]);
            Some(format!("the response begins with \"{shown}\""))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_protocols_are_known_by_their_first_bytes() {
        for (beginning, description) in [
            (&b""[..], None),
            (b"HTT", None),
            (b"HTTP/1.1 200 OK\r\nContent-Le", None),
            (b"\x15\x03\x01\0\x02\x02\x46", Some("the server speaks TLS")),
            (b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x64", Some("the server speaks HTTP/2")),
            (
                b"SSH-2.0-OpenSSH_9.2\r\nmore",
                Some("the response begins with \"SSH-2.0-OpenSSH_9.2\""),
            ),
            (b"\x1b]0;x\x07", Some("the response begins with \"\\033]0;x\\a\"")),
            (
                &[b'x'; 100],
                Some("the response begins with \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\""),
            ),
        ] {
            assert_eq!(described(beginning).as_deref(), description, "{beginning:?}");
        }
    }
}
