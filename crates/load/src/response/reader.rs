//! Finds the end of each response of a connection.

use super::chunked::{ChunkedReader, skip};
use super::head::{self, Body, Head};
use super::{MalformedResponse, Response, TruncatedResponse, other_protocol};

/// The longest head, in bytes. Servers send a few hundred.
pub(crate) const HEAD_BYTES_MAX: usize = 64 * 1024;

/// A reader of the responses of one connection.
#[derive(Debug, Default)]
pub(crate) struct ResponseReader {
    /// Whether responses are to HEAD and therefore have no body.
    to_head: bool,
    phase: Phase,
    /// The beginning of a head that arrives in several pieces.
    partial: Vec<u8>,
    /// The previous head. Servers repeat heads, which then need not be parsed again.
    last: Vec<u8>,
    last_head: Head,
}

#[derive(Debug, Default)]
enum Phase {
    #[default]
    Head,
    Length {
        left: u64,
    },
    Chunked(ChunkedReader),
    UntilClose,
}

impl ResponseReader {
    /// Creates a reader of responses to HEAD, or to any other method.
    pub(crate) fn new(to_head: bool) -> Self {
        Self { to_head, ..Self::default() }
    }

    /// Forgets any incomplete response, for a new connection.
    pub(crate) fn restart(&mut self) {
        self.phase = Phase::Head;
        self.partial.clear();
    }

    /// Removes bytes from the front of `bytes` up to the end of a response, or all bytes.
    pub(crate) fn read(
        &mut self,
        bytes: &mut &[u8],
    ) -> Result<Option<Response>, MalformedResponse> {
        while !bytes.is_empty() {
            let ended = match &mut self.phase {
                Phase::Head => self.read_head(bytes)?,
                Phase::Length { left } => {
                    skip(bytes, left);
                    *left == 0
                }
                Phase::Chunked(chunked) => chunked.read(bytes)?,
                Phase::UntilClose => {
                    *bytes = &[];
                    false
                }
            };
            if ended {
                self.phase = Phase::Head;
                return Ok(Some(self.response()));
            }
        }
        Ok(None)
    }

    /// Returns the number of body bytes to come; 0 if unknown.
    pub(crate) fn body_bytes_left(&self) -> u64 {
        if let Phase::Length { left } = self.phase { left } else { 0 }
    }

    /// Whether nothing of the next response has arrived.
    pub(crate) fn is_between_responses(&self) -> bool {
        matches!(self.phase, Phase::Head) && self.partial.is_empty()
    }

    /// Describes what the server speaks if the current response does not begin like one of HTTP/1.
    pub(crate) fn other_protocol(&self) -> Option<String> {
        other_protocol::described(&self.partial)
    }

    /// Handles the end of the connection, which completes a response without a length and breaks any other.
    pub(crate) fn close(&mut self) -> Result<Option<Response>, TruncatedResponse> {
        match self.phase {
            Phase::Head if self.partial.is_empty() => Ok(None),
            Phase::UntilClose => {
                self.restart();
                Ok(Some(self.response()))
            }
            _ => Err(TruncatedResponse),
        }
    }

    fn response(&self) -> Response {
        let Head { status, keeps_alive, is_encoded, .. } = self.last_head;
        Response { status, is_encoded, keeps_alive }
    }

    /// Reads a head. Returns whether the head is the whole response.
    fn read_head(&mut self, bytes: &mut &[u8]) -> Result<bool, MalformedResponse> {
        if self.partial.is_empty() && !self.last.is_empty() && bytes.starts_with(&self.last) {
            *bytes = &bytes[self.last.len()..];
            return Ok(self.begin_body());
        }
        if !self.take_head(bytes)? {
            return Ok(false);
        }
        // Only a final head is kept, because `last_head` describes it.
        let bytes = std::mem::take(&mut self.last);
        let head = match head::parse(&bytes) {
            Ok(head) => head,
            Err(malformed) => {
                self.partial = bytes;
                return Err(malformed);
            }
        };
        match head.status {
            101 => return Err(MalformedResponse),
            ..200 => return Ok(false),
            _ => {}
        }
        (self.last, self.last_head) = (bytes, head);
        Ok(self.begin_body())
    }

    /// Moves a complete head to `last`.
    fn take_head(&mut self, bytes: &mut &[u8]) -> Result<bool, MalformedResponse> {
        let known = self.partial.len();
        // Counting the known bytes makes the limit independent of how the head is divided.
        let piece = &bytes[..bytes.len().min(HEAD_BYTES_MAX - known)];
        if known == 0
            && let Some(end) = head::end(piece, 0)
        {
            self.last.clear();
            self.last.extend_from_slice(&piece[..end]);
            *bytes = &bytes[end..];
            return Ok(true);
        }
        self.partial.extend_from_slice(piece);
        let Some(end) = head::end(&self.partial, known) else {
            *bytes = &[];
            return if self.partial.len() < HEAD_BYTES_MAX {
                Ok(false)
            } else {
                Err(MalformedResponse)
            };
        };
        *bytes = &bytes[end - known..];
        self.partial.truncate(end);
        std::mem::swap(&mut self.partial, &mut self.last);
        self.partial.clear();
        Ok(true)
    }

    /// Starts the body. Returns whether there is none.
    fn begin_body(&mut self) -> bool {
        let body = if self.to_head { Body::None } else { self.last_head.body };
        self.phase = match body {
            Body::None | Body::Length(0) => return true,
            Body::Length(left) => Phase::Length { left },
            Body::Chunked => Phase::Chunked(ChunkedReader::default()),
            Body::UntilClose => Phase::UntilClose,
        };
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLAIN: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n\
          10\r\n0123456789abcdef\r\n0\r\nTrailer: 1\r\n\r\n";
    const EMPTY: &[u8] = b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n";
    const INTERIM: &[u8] = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";

    fn statuses(mut bytes: &[u8]) -> Result<Vec<u16>, MalformedResponse> {
        let mut reader = ResponseReader::default();
        let mut statuses = Vec::new();
        while let Some(response) = reader.read(&mut bytes)? {
            statuses.push(response.status);
        }
        Ok(statuses)
    }

    #[test]
    fn responses_follow_one_another() {
        let all = [PLAIN, CHUNKED, EMPTY, INTERIM, PLAIN].concat();
        assert_eq!(statuses(&all), Ok(vec![200, 200, 304, 200]));
    }

    #[test]
    fn an_answer_to_head_has_no_body() {
        let mut reader = ResponseReader::new(true);
        let mut bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n".as_slice();
        assert_eq!(
            reader.read(&mut bytes),
            Ok(Some(Response { status: 200, is_encoded: false, keeps_alive: true }))
        );
    }

    #[test]
    fn a_body_without_a_length_ends_with_the_connection() {
        let mut reader = ResponseReader::default();
        let mut bytes = b"HTTP/1.0 200 OK\r\n\r\nany".as_slice();
        assert_eq!(reader.read(&mut bytes), Ok(None));
        assert_eq!(
            reader.close(),
            Ok(Some(Response { status: 200, is_encoded: false, keeps_alive: false }))
        );
    }

    #[test]
    fn a_connection_that_ends_inside_a_response_broke_it() {
        for cut in 1..PLAIN.len() {
            let mut reader = ResponseReader::default();
            assert_eq!(reader.read(&mut &PLAIN[..cut]), Ok(None), "{cut}");
            assert_eq!(reader.close(), Err(TruncatedResponse), "{cut}");
        }
        assert_eq!(ResponseReader::default().close(), Ok(None));
    }

    #[test]
    fn garbage_is_refused() {
        let endless = [b'x'; HEAD_BYTES_MAX + 1];
        let garbage: [&[u8]; 5] = [
            b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
            b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
            &endless,
        ];
        for bytes in garbage {
            assert_eq!(
                statuses(bytes),
                Err(MalformedResponse),
                "{:?}",
                String::from_utf8_lossy(bytes)
            );
        }
    }

    #[test]
    fn the_limit_of_a_head_is_the_same_however_it_comes() {
        let head = |bytes: usize| {
            let (start, end) = ("HTTP/1.1 204 N\r\nA: ", "\r\n\r\n");
            format!("{start}{}{end}", "x".repeat(bytes - start.len() - end.len())).into_bytes()
        };
        for piece in [1, 1000, HEAD_BYTES_MAX - 1, HEAD_BYTES_MAX, HEAD_BYTES_MAX + 1] {
            for (bytes, is_read) in [(HEAD_BYTES_MAX, true), (HEAD_BYTES_MAX + 1, false)] {
                let mut reader = ResponseReader::default();
                let head = head(bytes);
                let mut pieces = head.chunks(piece).map(|mut piece| reader.read(&mut piece));
                let last = pieces.find(|read| *read != Ok(None));
                let response = Response { status: 204, is_encoded: false, keeps_alive: true };
                let expected = if is_read { Ok(Some(response)) } else { Err(MalformedResponse) };
                assert_eq!(last, Some(expected), "{bytes} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn garbage_that_comes_again_is_refused_again() {
        let mut reader = ResponseReader::default();
        for _ in 0..2 {
            assert_eq!(
                reader.read(&mut b"SSH-2.0-OpenSSH_9.2\r\n\r\n".as_slice()),
                Err(MalformedResponse)
            );
            reader.restart();
        }
    }

    #[test]
    fn a_changed_head_is_not_taken_for_the_last_one() {
        let other = b"HTTP/1.1 500 OK\r\nContent-Length: 4\r\n\r\nhell";
        assert_eq!(statuses(&[PLAIN, PLAIN, other, PLAIN].concat()), Ok(vec![200, 200, 500, 200]));
    }

    proptest! {
        #[test]
        fn pieces_of_any_size_say_the_same(cuts in proptest::collection::vec(1usize..40, 0..60)) {
            let all = [PLAIN, CHUNKED, INTERIM, EMPTY, PLAIN, CHUNKED].concat();
            let mut reader = ResponseReader::default();
            let (mut rest, mut cuts, mut found) = (all.as_slice(), cuts.into_iter(), Vec::new());
            while !rest.is_empty() {
                let (mut piece, later) = rest.split_at(cuts.next().unwrap_or(rest.len()).min(rest.len()));
                rest = later;
                while let Some(response) = reader.read(&mut piece).unwrap() {
                    found.push(response.status);
                }
            }
            prop_assert_eq!(found, [200, 200, 304, 200, 200]);
        }

        #[test]
        fn no_bytes_make_it_panic(pieces: Vec<Vec<u8>>) {
            let mut reader = ResponseReader::default();
            for piece in pieces {
                let mut bytes = piece.as_slice();
                while let Ok(Some(_)) = reader.read(&mut bytes) {}
            }
        }
    }
}
