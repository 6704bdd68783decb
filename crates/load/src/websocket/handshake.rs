//! The handshake of a WebSocket (RFC 6455, section 4).

/// The key of every handshake and the only valid response, from section 1.3.
pub(crate) const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &[u8] = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// Whether the server accepts the handshake, without extensions that were not offered.
pub(crate) fn is_accepted(head: &[u8]) -> bool {
    let mut lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
    let status = lines.next().unwrap_or_default();
    let mut accept = None;
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (name, value) = line.split_at(colon);
        if name.eq_ignore_ascii_case(b"sec-websocket-accept") {
            accept = value.get(1..).map(<[u8]>::trim_ascii);
        }
        if name.eq_ignore_ascii_case(b"sec-websocket-extensions") {
            return false;
        }
    }
    status.starts_with(b"HTTP/1.1 101") && accept == Some(ACCEPT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_without_a_colon_accepts_nothing() {
        assert!(!is_accepted(b"HTTP/1.1 101 S\r\nSec-WebSocket-Accept\r\n\r\n"));
        let right = b"HTTP/1.1 101 S\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\n\n";
        assert!(is_accepted(right));
    }
}
