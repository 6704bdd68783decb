//! The head of a response: its status, and how its body ends.

use super::MalformedResponse;

/// The parts of a head that matter to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) keeps_alive: bool,
    /// Whether the body has a content coding other than identity.
    pub(super) is_encoded: bool,
    pub(super) body: Body,
}

/// How the body ends (RFC 9112, section 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Body {
    #[default]
    None,
    Length(u64),
    Chunked,
    UntilClose,
}

/// Returns the end of the head, if it is there. The first `known` bytes were searched before.
///
/// A line may end in LF alone (RFC 9112, section 2.2), as in old CGI programs and hand-written servers.
pub(crate) fn end(bytes: &[u8], known: usize) -> Option<usize> {
    let mut at = known.saturating_sub(2);
    while let Some(line) = bytes[at..].iter().position(|byte| *byte == b'\n') {
        at += line + 1;
        match bytes[at..] {
            [b'\n', ..] => return Some(at + 1),
            [b'\r', b'\n', ..] => return Some(at + 2),
            _ => {}
        }
    }
    None
}

/// Parses a whole head, including its empty line.
pub(super) fn parse(head: &[u8]) -> Result<Head, MalformedResponse> {
    let mut lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
    let (status, is_new) = status(lines.next().unwrap_or_default())?;
    let (mut length, mut is_chunked, mut keeps_alive) = (None, false, is_new);
    let mut is_encoded = false;
    for line in lines.take_while(|line| !line.is_empty()) {
        let colon = line.iter().position(|byte| *byte == b':').ok_or(MalformedResponse)?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            let said = number(value)?;
            if length.is_some_and(|other| other != said) {
                return Err(MalformedResponse);
            }
            length = Some(said);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            is_chunked = tokens(value).last().is_some_and(|last| is_token(last, b"chunked"));
            if !is_chunked {
                keeps_alive = false;
            }
        } else if name.eq_ignore_ascii_case(b"connection") {
            keeps_alive = keeps_alive_after(value, keeps_alive);
        } else if name.eq_ignore_ascii_case(b"content-encoding") {
            is_encoded = tokens(value).any(|token| !is_token(token, b"identity"));
        }
    }
    let body = match length {
        _ if matches!(status, 100..200 | 204 | 304) => Body::None,
        _ if is_chunked => Body::Chunked,
        Some(length) => Body::Length(length),
        None => Body::UntilClose,
    };
    let keeps_alive = keeps_alive && body != Body::UntilClose;
    Ok(Head { status, keeps_alive, is_encoded, body })
}

/// Parses the status line. Returns the status, and whether the version keeps connections alive by default.
fn status(line: &[u8]) -> Result<(u16, bool), MalformedResponse> {
    let is_new = line.starts_with(b"HTTP/1.1 ");
    if !is_new && !line.starts_with(b"HTTP/1.0 ") {
        return Err(MalformedResponse);
    }
    let code = line.get(9..12).ok_or(MalformedResponse)?;
    let ends = line.get(12).is_none_or(|byte| *byte == b' ');
    let code = u16::try_from(number(code)?).map_err(|_| MalformedResponse)?;
    if ends && (100..1000).contains(&code) { Ok((code, is_new)) } else { Err(MalformedResponse) }
}

fn number(digits: &[u8]) -> Result<u64, MalformedResponse> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(digits).map_err(|_| MalformedResponse)?;
    if is_number { text.parse().map_err(|_| MalformedResponse) } else { Err(MalformedResponse) }
}

fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

fn is_token(token: &[u8], word: &[u8]) -> bool {
    token.eq_ignore_ascii_case(word)
}

fn keeps_alive_after(value: &[u8], before: bool) -> bool {
    if tokens(value).any(|token| is_token(token, b"close")) {
        return false;
    }
    before || tokens(value).any(|token| is_token(token, b"keep-alive"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(status: u16, keeps_alive: bool, body: Body) -> Result<Head, MalformedResponse> {
        Ok(Head { status, keeps_alive, is_encoded: false, body })
    }

    #[test]
    fn the_body_ends_as_the_head_says() {
        let cases = [
            ("HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n", head(200, true, Body::Length(12))),
            (
                "HTTP/1.1 200\r\ncontent-length:7\r\nContent-Length: 7\r\n\r\n",
                head(200, true, Body::Length(7)),
            ),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, Chunked\r\n\r\n",
                head(200, true, Body::Chunked),
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
                head(200, true, Body::Chunked),
            ),
            ("HTTP/1.1 200 OK\r\n\r\n", head(200, false, Body::UntilClose)),
            ("HTTP/1.1 204 No Content\r\n\r\n", head(204, true, Body::None)),
            ("HTTP/1.1 103 Early Hints\r\n\r\n", head(103, true, Body::None)),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn a_content_coding_is_noticed() {
        for (coding, is_encoded) in [("gzip", true), ("identity", false), ("br, gzip", true)] {
            let text = format!("HTTP/1.1 204 No\r\nContent-Encoding: {coding}\r\n\r\n");
            assert_eq!(parse(text.as_bytes()).map(|head| head.is_encoded), Ok(is_encoded));
        }
    }

    #[test]
    fn the_connection_is_kept_as_the_head_says() {
        let cases = [
            ("HTTP/1.1", "close", false),
            ("HTTP/1.1", "x, Close", false),
            ("HTTP/1.1", "keep-alive", true),
            ("HTTP/1.0", "Keep-Alive", true),
            ("HTTP/1.0", "x", false),
        ];
        for (version, connection, kept) in cases {
            let text = format!(
                "{version} 200 OK\r\nConnection: {connection}\r\nContent-Length: 0\r\n\r\n"
            );
            assert_eq!(parse(text.as_bytes()).map(|head| head.keeps_alive), Ok(kept), "{text:?}");
        }
    }

    #[test]
    fn malformed_heads_are_refused() {
        for text in [
            "HTTP/2 200\r\n\r\n",
            "HTTP/1.1 20\r\n\r\n",
            "HTTP/1.1 099 Low\r\n\r\n",
            "HTTP/1.1 2000 Long\r\n\r\n",
            "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        ] {
            assert_eq!(parse(text.as_bytes()), Err(MalformedResponse), "{text:?}");
        }
    }

    #[test]
    fn the_end_may_lie_across_two_pieces() {
        assert_eq!(end(b"HTTP/1.1 200 OK\r\n\r\nbody", 18), Some(19));
        assert_eq!(end(b"HTTP/1.1 200 OK\r\n\r", 17), None);
    }

    #[test]
    fn lines_may_end_in_lf_alone() {
        for (head, length) in [
            (&b"HTTP/1.1 200 OK\nA: b\n\nbody"[..], 22),
            (b"HTTP/1.1 200 OK\nA: b\n\r\nbody", 23),
            (b"HTTP/1.1 200 OK\r\nA: b\r\n\nbody", 24),
        ] {
            for known in 0..length {
                assert_eq!(end(head, known), Some(length), "{known}");
            }
        }
        assert_eq!(end(b"\r\nA\r\r\n", 0), None);
    }
}
