//! Writes the head of a response, and chooses the framing of its body.

use crate::date::DATE_BYTES;
use crate::decimal;
use crate::field::members;
use crate::head::Version;
use crate::request::Request;
use crate::token;

/// The constraints that a request puts on its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseConstraints {
    /// The HTTP version of the request.
    pub version: Version,
    /// Whether the response ends after its head.
    pub is_head: bool,
    /// Whether the connection may stay open.
    pub is_persistent: bool,
}

impl ResponseConstraints {
    /// Returns the constraints of `request`.
    #[must_use]
    pub fn of(request: &Request<'_>) -> Self {
        Self {
            version: request.version(),
            is_head: request.is_head(),
            is_persistent: request.is_persistent(),
        }
    }

    /// Returns the constraints for a malformed request: HTTP/1.1, and the connection closes.
    #[must_use]
    pub fn broken() -> Self {
        Self { version: Version::Http11, is_head: false, is_persistent: false }
    }
}

/// The way in which the end of a response's body is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseFraming {
    /// The response has no body, even if the application provides one.
    Empty,
    /// By the length of the body in bytes.
    Length(u64),
    /// By chunks, which the sender creates with [`chunk_start`] and [`CHUNK_END`].
    Chunked,
    /// By chunks that the sender creates after decoding the chunks of the body.
    Recoded,
    /// By the end of the connection or stream, after decoding the chunks of the body. Clients of HTTP/1.0 and HTTP/2
    /// must not receive chunks (RFC 9112, section 6.1; RFC 9113, section 8.2.2).
    Decoded,
    /// By the end of the connection or stream.
    UntilClose,
}

impl ResponseFraming {
    /// Whether the sender decodes the chunks of the body. A body with malformed chunks must not look complete.
    #[must_use]
    pub fn decodes(self) -> bool {
        matches!(self, Self::Recoded | Self::Decoded)
    }

    /// Whether the sender creates chunks.
    #[must_use]
    pub fn makes_chunks(self) -> bool {
        matches!(self, Self::Chunked | Self::Recoded)
    }
}

/// The framing and the connection's fate, as the finished head announces them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyPlan {
    /// The way in which the body's end is marked.
    pub framing: ResponseFraming,
    /// Whether the connection stays open after the body.
    pub is_persistent: bool,
}

/// A field that would corrupt the head: its name is not a token, or its value contains a control character such as a
/// line break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadField;

impl std::fmt::Display for BadField {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a field's name is not a token, or its value has a control character")
    }
}

impl std::error::Error for BadField {}

/// Appends the head of a response to a buffer.
///
/// Fields that affect the framing are noted instead of written. Only [`finish`](Self::finish) writes `Content-Length`
/// and the chunked coding, so that they are correct and appear at most once.
#[derive(Debug)]
pub struct ResponseHead<'a> {
    out: &'a mut Vec<u8>,
    partial: PartialHead,
}

/// The state of an unfinished head, without the buffer that contains it. A head can be resumed from both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartialHead {
    status: u16,
    /// The offset of the head in the buffer.
    start: usize,
    /// The `Content-Length` that the application has set.
    claimed_bytes: Option<u64>,
    /// Whether the application has set `Transfer-Encoding: chunked`.
    claims_chunks: bool,
    /// Whether fields announce codings other than chunked.
    has_codings: bool,
    closes: bool,
    keeps_alive: bool,
    names_connection: bool,
    is_dated: bool,
}

/// The end of a chunked body.
pub const CHUNKS_END: &[u8] = b"0\r\n\r\n";

/// The end of each chunk.
pub const CHUNK_END: &[u8] = b"\r\n";

/// Writes the line before a chunk of `length` bytes, which must not be zero.
pub fn chunk_start(out: &mut Vec<u8>, length: usize) {
    let mut digits = [0; usize::BITS as usize / 4];
    let mut at = digits.len();
    let mut rest = length;
    while at == digits.len() || rest > 0 {
        at -= 1;
        digits[at] = b"0123456789abcdef"[rest & 15];
        rest >>= 4;
    }
    out.extend_from_slice(&digits[at..]);
    out.extend_from_slice(b"\r\n");
}

impl<'a> ResponseHead<'a> {
    /// Starts a head with the status line.
    pub fn new(out: &'a mut Vec<u8>, status: u16) -> Self {
        let start = out.len();
        if status == 200 {
            out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        } else {
            out.extend_from_slice(b"HTTP/1.1 ");
            decimal::write(out, u64::from(status));
            out.push(b' ');
            out.extend_from_slice(reason(status).as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        let partial = PartialHead {
            status,
            start,
            claimed_bytes: None,
            claims_chunks: false,
            has_codings: false,
            closes: false,
            keeps_alive: false,
            names_connection: false,
            is_dated: false,
        };
        Self { out, partial }
    }

    /// Resumes a head that was started in `out`.
    pub fn resume(out: &'a mut Vec<u8>, partial: PartialHead) -> Self {
        Self { out, partial }
    }

    /// Returns the state of the head.
    #[must_use]
    pub fn partial(&self) -> PartialHead {
        self.partial
    }

    /// Writes or notes a field.
    ///
    /// # Errors
    /// [`BadField`]; the head is unchanged.
    pub fn field(&mut self, name: &[u8], value: &[u8]) -> Result<(), BadField> {
        let is_named = !name.is_empty() && name.iter().all(|byte| token::is_token(*byte));
        if !is_named || !token::are_values(value) {
            return Err(BadField);
        }
        if !self.takes_note(name, value) {
            self.write_line(name, value);
        }
        Ok(())
    }

    fn write_line(&mut self, name: &[u8], value: &[u8]) {
        self.out.extend_from_slice(name);
        self.out.extend_from_slice(b": ");
        self.out.extend_from_slice(value);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Notes the effect of a field on the framing. Returns `true` if the field itself must not be written.
    fn takes_note(&mut self, name: &[u8], value: &[u8]) -> bool {
        let is = |wanted: &[u8]| name.eq_ignore_ascii_case(wanted);
        match name.len() {
            4 if is(b"date") => self.partial.is_dated = true,
            10 if is(b"connection") => {
                self.partial.names_connection = true;
                let has = |wanted: &[u8]| {
                    members(value).any(|member| member.eq_ignore_ascii_case(wanted))
                };
                self.partial.closes |= has(b"close");
                self.partial.keeps_alive |= has(b"keep-alive");
            }
            14 if is(b"content-length") => {
                self.partial.claimed_bytes = decimal::parse(value);
                return true;
            }
            17 if is(b"transfer-encoding") => {
                self.note_codings(name, value);
                return true;
            }
            _ => {}
        }
        false
    }

    /// Notes transfer codings of the body. The sender writes the chunked coding; other codings are written as fields.
    fn note_codings(&mut self, name: &[u8], value: &[u8]) {
        let has_body = !is_bodiless(self.partial.status) && self.partial.status != RESET_CONTENT;
        for coding in members(value).filter(|_| has_body) {
            let word = coding.split(|byte| *byte == b';').next().unwrap_or_default();
            if word.trim_ascii().eq_ignore_ascii_case(b"chunked") {
                self.partial.claims_chunks = true;
            } else {
                self.partial.has_codings = true;
                self.write_line(name, coding);
            }
        }
    }

    /// Removes members from the fields with this name, and the fields that have no members left.
    fn drop_members(&mut self, name: &[u8], is_dropped: impl Fn(&[u8]) -> bool) {
        let lines = self.out.split_off(self.partial.start);
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            let colon = line.iter().position(|byte| *byte == b':').unwrap_or(0);
            let (own, value) = line.split_at(colon);
            if !own.eq_ignore_ascii_case(name) {
                self.out.extend_from_slice(line);
                continue;
            }
            let kept: Vec<_> = members(&value[1..]).filter(|member| !is_dropped(member)).collect();
            if !kept.is_empty() {
                self.write_line(own, &kept.join(&b", "[..]));
            }
        }
    }

    /// Writes the missing fields and the empty line. `body_bytes` is the length of the body, if known, and takes
    /// precedence over the application's `Content-Length`.
    pub fn finish(
        mut self,
        constraints: ResponseConstraints,
        body_bytes: Option<u64>,
        date: &[u8; DATE_BYTES],
    ) -> BodyPlan {
        let framing = self.partial.framing(constraints, body_bytes);
        let ends = !matches!(framing, ResponseFraming::UntilClose | ResponseFraming::Decoded);
        let is_persistent = constraints.is_persistent && ends && !self.partial.closes;
        if self.partial.has_codings && constraints.version != Version::Http11 {
            self.drop_members(b"transfer-encoding", |_| true);
        }
        if self.partial.keeps_alive && !is_persistent {
            let is_keep_alive = |member: &[u8]| member.eq_ignore_ascii_case(b"keep-alive");
            self.drop_members(b"connection", is_keep_alive);
        }
        if !self.partial.is_dated {
            self.out.extend_from_slice(b"date: ");
            self.out.extend_from_slice(date);
            self.out.extend_from_slice(b"\r\n");
        }
        if let Some(length) = self.partial.announced_bytes(constraints, body_bytes) {
            self.out.extend_from_slice(b"content-length: ");
            decimal::write(self.out, length);
            self.out.extend_from_slice(b"\r\n");
        }
        if framing.makes_chunks() {
            self.out.extend_from_slice(b"transfer-encoding: chunked\r\n");
        }
        if !is_persistent && !self.partial.closes {
            self.out.extend_from_slice(b"connection: close\r\n");
        } else if is_persistent
            && constraints.version == Version::Http10
            && !self.partial.keeps_alive
        {
            self.out.extend_from_slice(b"connection: keep-alive\r\n");
        }
        self.out.extend_from_slice(b"\r\n");
        BodyPlan { framing, is_persistent }
    }

    /// Writes the missing fields before the connection is handed over to the application, which determines the
    /// following bytes.
    pub fn finish_raw(self, date: &[u8; DATE_BYTES]) -> BodyPlan {
        if !self.partial.is_dated {
            self.out.extend_from_slice(b"date: ");
            self.out.extend_from_slice(date);
            self.out.extend_from_slice(b"\r\n");
        }
        if self.partial.claims_chunks {
            self.out.extend_from_slice(b"transfer-encoding: chunked\r\n");
        } else if let Some(length) = self.partial.claimed_bytes {
            self.out.extend_from_slice(b"content-length: ");
            decimal::write(self.out, length);
            self.out.extend_from_slice(b"\r\n");
        }
        if !self.partial.names_connection {
            self.out.extend_from_slice(b"connection: close\r\n");
        }
        self.out.extend_from_slice(b"\r\n");
        BodyPlan { framing: ResponseFraming::UntilClose, is_persistent: false }
    }
}

impl PartialHead {
    /// Returns the `Content-Length` that the application has set; `None` if the body has a transfer coding (RFC 9112,
    /// section 6.3).
    #[must_use]
    pub fn claimed_bytes(&self) -> Option<u64> {
        self.claimed_bytes.filter(|_| !self.has_transfer_coding())
    }

    /// Whether the application has set `Transfer-Encoding: chunked`, so that its body consists of chunks.
    #[must_use]
    pub fn claims_chunks(&self) -> bool {
        self.claims_chunks
    }

    /// Returns the same head for a body that replaces the application's and has no chunks.
    #[must_use]
    pub fn without_chunks(self) -> Self {
        Self { claims_chunks: false, ..self }
    }

    fn has_transfer_coding(&self) -> bool {
        self.claims_chunks || self.has_codings
    }

    fn framing(
        &self,
        constraints: ResponseConstraints,
        body_bytes: Option<u64>,
    ) -> ResponseFraming {
        if constraints.is_head || is_bodiless(self.status) || self.status == RESET_CONTENT {
            return ResponseFraming::Empty;
        }
        match body_bytes.or(self.claimed_bytes) {
            _ if self.claims_chunks && constraints.version == Version::Http11 => {
                ResponseFraming::Recoded
            }
            _ if self.claims_chunks => ResponseFraming::Decoded,
            // A body in an unknown coding can only be framed by the end of the connection.
            _ if self.has_codings => ResponseFraming::UntilClose,
            Some(length) => ResponseFraming::Length(length),
            None if constraints.version == Version::Http11 => ResponseFraming::Chunked,
            None => ResponseFraming::UntilClose,
        }
    }

    /// Returns the `Content-Length` to write. In a response without a body, the field announces the length of the body
    /// that a GET would return. Such a response gets the field only if the application has set it, or if the length is
    /// known and not zero.
    fn announced_bytes(
        &self,
        constraints: ResponseConstraints,
        body_bytes: Option<u64>,
    ) -> Option<u64> {
        match self.status {
            RESET_CONTENT => Some(0),
            _ if self.has_transfer_coding() => None,
            100..=199 | 204 => None,
            304 => self.claimed_bytes,
            _ if constraints.is_head => {
                self.claimed_bytes.or(body_bytes.filter(|bytes| *bytes > 0))
            }
            _ => body_bytes.or(self.claimed_bytes),
        }
    }
}

/// The status of a response without content, which requires a length of zero (RFC 9110, section 15.3.6).
const RESET_CONTENT: u16 = 205;

/// Whether a response with `status` never has a body (RFC 9112, section 6.3).
#[must_use]
pub fn is_bodiless(status: u16) -> bool {
    matches!(status, 100..=199 | 204 | 304)
}

/// Returns the reason phrase of a status in IANA's registry, or an empty string.
#[must_use]
pub fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        102 => "Processing",
        103 => "Early Hints",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        207 => "Multi-Status",
        208 => "Already Reported",
        226 => "IM Used",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        305 => "Use Proxy",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        status => error_reason(status),
    }
}

fn error_reason(status: u16) -> &'static str {
    match status {
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        423 => "Locked",
        424 => "Failed Dependency",
        425 => "Too Early",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        451 => "Unavailable For Legal Reasons",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        506 => "Variant Also Negotiates",
        507 => "Insufficient Storage",
        508 => "Loop Detected",
        511 => "Network Authentication Required",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: &[u8; DATE_BYTES] = b"Sun, 06 Nov 1994 08:49:37 GMT";
    const GET: ResponseConstraints =
        ResponseConstraints { version: Version::Http11, is_head: false, is_persistent: true };
    const OLD: ResponseConstraints = ResponseConstraints { version: Version::Http10, ..GET };
    const HEAD: ResponseConstraints = ResponseConstraints { is_head: true, ..GET };

    /// Returns the lines of a head without the date, joined by `|`, and the plan of the body.
    fn head(
        status: u16,
        fields: &[(&str, &str)],
        constraints: ResponseConstraints,
        length: Option<u64>,
    ) -> (String, ResponseFraming, bool) {
        let mut out = Vec::new();
        let mut head = ResponseHead::new(&mut out, status);
        for (name, value) in fields {
            head.field(name.as_bytes(), value.as_bytes()).unwrap();
        }
        let plan = head.finish(constraints, length, DATE);
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<_> = text.strip_suffix("\r\n\r\n").unwrap().split("\r\n").collect();
        let date = "date: Sun, 06 Nov 1994 08:49:37 GMT";
        let lines: Vec<_> = lines.into_iter().filter(|line| *line != date).collect();
        (lines.join("|"), plan.framing, plan.is_persistent)
    }

    #[test]
    fn a_known_length_is_written() {
        let got = head(200, &[("X-A", "b")], GET, Some(5));
        let lines = "HTTP/1.1 200 OK|X-A: b|content-length: 5";
        assert_eq!(got, (lines.into(), ResponseFraming::Length(5), true));
    }

    #[test]
    fn the_known_length_overrides_the_claimed_one_and_is_written_once() {
        let got = head(404, &[("Content-Length", "7")], GET, Some(5));
        let lines = "HTTP/1.1 404 Not Found|content-length: 5";
        assert_eq!(got, (lines.into(), ResponseFraming::Length(5), true));
        let got = head(200, &[("content-length", "7")], GET, None);
        assert_eq!(got.1, ResponseFraming::Length(7));
    }

    #[test]
    fn an_unknown_length_is_chunked_or_ends_with_the_connection() {
        let got = head(200, &[], GET, None);
        let lines = "HTTP/1.1 200 OK|transfer-encoding: chunked";
        assert_eq!(got, (lines.into(), ResponseFraming::Chunked, true));
        let got = head(200, &[], OLD, None);
        let lines = "HTTP/1.1 200 OK|connection: close";
        assert_eq!(got, (lines.into(), ResponseFraming::UntilClose, false));
    }

    #[test]
    fn the_sender_creates_the_chunks_that_the_application_claims() {
        let lines = "HTTP/1.1 200 OK|X-A: b|transfer-encoding: chunked";
        for claims in
            [&["chunked"][..], &["chunked", "Chunked"], &[" chunked , ", ""], &["chunked;a=b"]]
        {
            let claims = claims.iter().map(|claim| ("Transfer-Encoding", *claim));
            let fields: Vec<_> = claims.chain([("content-length", "7"), ("X-A", "b")]).collect();
            let got = head(200, &fields, GET, Some(5));
            assert_eq!(got, (lines.into(), ResponseFraming::Recoded, true), "{fields:?}");
        }
    }

    #[test]
    fn other_codings_are_written_and_their_body_ends_with_the_connection() {
        let got = head(200, &[("Transfer-Encoding", "gzip")], GET, Some(5));
        let lines = "HTTP/1.1 200 OK|Transfer-Encoding: gzip|connection: close";
        assert_eq!(got, (lines.into(), ResponseFraming::UntilClose, false));
        let got = head(200, &[("te", "x"), ("Transfer-Encoding", "gzip, chunked")], GET, None);
        let lines = "HTTP/1.1 200 OK|te: x|Transfer-Encoding: gzip|transfer-encoding: chunked";
        assert_eq!(got, (lines.into(), ResponseFraming::Recoded, true));
    }

    #[test]
    fn a_connection_that_closes_is_not_kept_alive_by_the_application_s_fields() {
        let closing = ResponseConstraints { is_persistent: false, ..GET };
        for (words, rest) in [
            (&["Keep-Alive"][..], "content-length: 0|connection: close"),
            (&["keep-alive, x-b"], "Connection: x-b|content-length: 0|connection: close"),
            (&["keep-alive", "close"], "Connection: close|content-length: 0"),
            (&["close, keep-alive"], "Connection: close|content-length: 0"),
        ] {
            let mut fields: Vec<_> = words.iter().map(|word| ("Connection", *word)).collect();
            fields.push(("X-A", "keep-alive"));
            let (lines, _, is_persistent) = head(200, &fields, closing, Some(0));
            assert!(!is_persistent && !lines.to_lowercase().contains("connection: keep-alive"));
            let got = lines.replace("|X-A: keep-alive", "");
            assert_eq!(got, format!("HTTP/1.1 200 OK|{rest}"), "{words:?}");
        }
        let got = head(200, &[("Connection", "keep-alive")], GET, Some(0));
        assert_eq!(got.0, "HTTP/1.1 200 OK|Connection: keep-alive|content-length: 0");
        let got = head(200, &[("Connection", "x-b")], OLD, Some(0));
        let lines = "HTTP/1.1 200 OK|Connection: x-b|content-length: 0|connection: keep-alive";
        assert_eq!(got.0, lines, "an old client is told in any case");
    }

    #[test]
    fn a_client_of_http_1_0_gets_no_transfer_coding() {
        let lines = "HTTP/1.1 200 OK|X-A: b|X-C: d|connection: close";
        let fields = [("X-A", "b"), ("Transfer-Encoding", "Chunked"), ("X-C", "d")];
        assert_eq!(
            head(200, &fields, OLD, Some(5)),
            (lines.into(), ResponseFraming::Decoded, false)
        );
        let fields = [("X-A", "b"), ("Transfer-Encoding", "gzip"), ("X-C", "d")];
        assert_eq!(head(200, &fields, OLD, None).1, ResponseFraming::UntilClose);
        let old_head = ResponseConstraints { is_head: true, ..OLD };
        let got = head(200, &[("Transfer-Encoding", "chunked")], old_head, None);
        assert_eq!((got.1, got.0.contains("ransfer")), (ResponseFraming::Empty, false));
    }

    #[test]
    fn no_body_means_no_framing() {
        let fields = [("content-length", "5"), ("transfer-encoding", "chunked")];
        let got = head(204, &fields, GET, Some(0));
        assert_eq!(got, ("HTTP/1.1 204 No Content".into(), ResponseFraming::Empty, true));
        let got = head(304, &[("content-length", "5")], GET, Some(0));
        let lines = "HTTP/1.1 304 Not Modified|content-length: 5";
        assert_eq!(got, (lines.into(), ResponseFraming::Empty, true));
        let got = head(200, &[("content-length", "5")], HEAD, Some(0));
        assert_eq!(got, ("HTTP/1.1 200 OK|content-length: 5".into(), ResponseFraming::Empty, true));
        let got = head(200, &[], HEAD, Some(0));
        assert_eq!(got, ("HTTP/1.1 200 OK".into(), ResponseFraming::Empty, true));
    }

    #[test]
    fn a_reset_has_no_content_whatever_the_application_says() {
        for fields in [&[("content-length", "5")][..], &[("transfer-encoding", "chunked")], &[]] {
            for constraints in [GET, OLD] {
                let (lines, framing, is_persistent) = head(205, fields, constraints, Some(5));
                assert!(
                    lines.starts_with("HTTP/1.1 205 Reset Content|content-length: 0"),
                    "{lines}"
                );
                assert_eq!((framing, is_persistent), (ResponseFraming::Empty, true));
            }
        }
    }

    #[test]
    fn the_connection_closes_when_either_side_wants_it() {
        let closing = ResponseConstraints { is_persistent: false, ..GET };
        let got = head(200, &[], closing, Some(0));
        let lines = "HTTP/1.1 200 OK|content-length: 0|connection: close";
        assert_eq!(got, (lines.into(), ResponseFraming::Length(0), false));
        let got = head(200, &[("Connection", "Close")], GET, Some(0));
        let lines = "HTTP/1.1 200 OK|Connection: Close|content-length: 0";
        assert_eq!(got, (lines.into(), ResponseFraming::Length(0), false));
        let got = head(200, &[], OLD, Some(0));
        assert_eq!(got.0, "HTTP/1.1 200 OK|content-length: 0|connection: keep-alive");
    }

    #[test]
    fn a_connection_that_is_handed_over_keeps_the_application_s_fields() {
        let mut out = Vec::new();
        let mut head = ResponseHead::new(&mut out, 101);
        head.field(b"connection", b"upgrade").unwrap();
        assert_eq!(head.finish_raw(DATE).framing, ResponseFraming::UntilClose);
        let lines = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\ndate: ";
        assert!(String::from_utf8(out).unwrap().starts_with(lines));
        let mut out = Vec::new();
        ResponseHead::new(&mut out, 200).finish_raw(DATE);
        assert!(out.ends_with(b"\r\nconnection: close\r\n\r\n"));
    }

    #[test]
    fn no_field_breaks_the_head() {
        let mut out = Vec::new();
        let mut head = ResponseHead::new(&mut out, 200);
        for (name, value) in
            [("a", "b\r\nc: d"), ("a", "b\nc"), ("a", "b\0"), ("a b", "c"), ("", "c"), ("a:", "c")]
        {
            assert_eq!(head.field(name.as_bytes(), value.as_bytes()), Err(BadField), "{name:?}");
        }
        assert_eq!(out, b"HTTP/1.1 200 OK\r\n");
    }

    #[test]
    fn an_application_may_set_its_own_date() {
        let mut out = Vec::new();
        let mut head = ResponseHead::new(&mut out, 200);
        head.field(b"Date", b"then").unwrap();
        head.finish(GET, Some(0), DATE);
        assert_eq!(out, b"HTTP/1.1 200 OK\r\nDate: then\r\ncontent-length: 0\r\n\r\n");
    }

    #[test]
    fn numbers_are_written_in_full() {
        let mut out = Vec::new();
        decimal::write(&mut out, 0);
        decimal::write(&mut out, u64::MAX);
        chunk_start(&mut out, 0xA0F);
        assert_eq!(out, b"018446744073709551615a0f\r\n");
    }

    #[test]
    fn a_status_without_a_phrase_is_still_a_status_line() {
        assert_eq!(head(299, &[], GET, Some(0)).0, "HTTP/1.1 299 |content-length: 0");
    }
}
