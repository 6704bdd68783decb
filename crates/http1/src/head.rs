//! The head of a request: httparse finds the parts, and this module checks them.

use std::mem::MaybeUninit;
use std::ops::Range;

use crate::body::RequestFraming;
use crate::field::{self, KnownField, Places};
use crate::limits::Limits;
use crate::parse_error::ParseError;
use crate::{decimal, host, path, token};

/// The HTTP version of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
    /// HTTP/2. The head is in the form of HTTP/1.1, but the framing around it differs.
    Http2,
}

/// The positions of a head's parts in the bytes from which it was parsed.
///
/// A single `Head` parses request after request, and reuses the memory for fields. [`request`](Self::request) combines
/// a head with its bytes.
#[derive(Debug, Clone)]
pub struct Head {
    pub(crate) length: usize,
    pub(crate) method: Span,
    pub(crate) target: Span,
    pub(crate) path: Span,
    pub(crate) query: Option<Span>,
    pub(crate) host: Option<Span>,
    pub(crate) version: Version,
    pub(crate) fields: Vec<(Span, Span)>,
    pub(crate) known: Places,
    pub(crate) framing: RequestFraming,
    pub(crate) is_persistent: bool,
    pub(crate) expects_continue: bool,
}

/// A range of the input. Heads are shorter than 4 GiB.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Span {
    start: u32,
    end: u32,
}

impl Span {
    fn new(range: Range<usize>) -> Self {
        let narrow = |at| u32::try_from(at).unwrap_or(u32::MAX);
        Self { start: narrow(range.start), end: narrow(range.end) }
    }

    /// Returns the range of `part` in `whole`; `part` must be a slice of `whole`.
    fn of(part: &[u8], whole: &[u8]) -> Self {
        let start = part.as_ptr().addr().wrapping_sub(whole.as_ptr().addr());
        Self::new(start..start + part.len())
    }

    pub(crate) fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    fn cut(self, range: Range<usize>) -> Self {
        let start = self.start as usize;
        Self::new(start + range.start..start + range.end)
    }
}

impl Default for Head {
    fn default() -> Self {
        Self::new()
    }
}

impl Head {
    /// Creates an empty head.
    #[must_use]
    pub fn new() -> Self {
        Self {
            length: 0,
            method: Span::default(),
            target: Span::default(),
            path: Span::default(),
            query: None,
            host: None,
            version: Version::Http11,
            fields: Vec::new(),
            known: Places::default(),
            framing: RequestFraming::None,
            is_persistent: true,
            expects_continue: false,
        }
    }

    /// Parses the head at the start of `input`. Returns `false` if more bytes are needed.
    ///
    /// `seen` is the number of bytes of `input` that an earlier call has already examined. Without it, a head that
    /// arrives byte by byte would be parsed for every byte.
    ///
    /// # Errors
    /// The first rule that the head violates, as soon as its bytes have arrived.
    pub fn parse(
        &mut self,
        input: &[u8],
        seen: usize,
        limits: &Limits,
    ) -> Result<bool, ParseError> {
        if seen > 0 && !may_end(input, seen) {
            return within(input, limits).map(|()| false);
        }
        let mut room = [const { MaybeUninit::uninit() }; Limits::FIELDS_MAX];
        let mut raw = httparse::Request::new(&mut []);
        let most = limits.fields_max.min(Limits::FIELDS_MAX);
        match raw.parse_with_uninit_headers(input, &mut room[..most]) {
            Ok(httparse::Status::Complete(length)) => {
                self.take(&raw, &input[..length], limits)?;
                Ok(true)
            }
            Ok(httparse::Status::Partial) => within(input, limits).map(|()| false),
            Err(httparse::Error::Version) => match later_minor(input) {
                // A higher minor version is treated as the highest known one (RFC 9110, section 2.5).
                Some(minor) => {
                    let mut known = input.to_vec();
                    known[minor] = b'1';
                    self.parse(&known, seen, limits)
                }
                None => Err(version_error(input)),
            },
            Err(error) => Err(from_httparse(error, input, limits)),
        }
    }

    /// Marks the head as one that arrived by HTTP/2, whatever its first line says.
    pub fn set_http2(&mut self) {
        self.version = Version::Http2;
    }

    /// Returns the length of the head in bytes, including the empty line.
    #[must_use]
    pub fn length_bytes(&self) -> usize {
        self.length
    }

    /// Returns the way in which the body's end is marked.
    #[must_use]
    pub fn framing(&self) -> RequestFraming {
        self.framing
    }

    fn take(
        &mut self,
        raw: &httparse::Request<'_, '_>,
        input: &[u8],
        limits: &Limits,
    ) -> Result<(), ParseError> {
        let (Some(method), Some(target)) = (raw.method, raw.path) else {
            return Err(ParseError::RequestLine);
        };
        self.length = input.len();
        self.method = Span::of(method.as_bytes(), input);
        self.target = Span::of(target.as_bytes(), input);
        self.version = if raw.version == Some(0) { Version::Http10 } else { Version::Http11 };
        self.take_lines(input, limits)?;
        self.take_fields(raw.headers, input)?;
        self.take_method(input)?;
        self.take_target(input)?;
        self.take_host(input)?;
        self.take_framing(input)?;
        self.take_connection(input)
    }

    /// Checks sizes, and that at most an empty line precedes the method (RFC 9112, section 2.2).
    fn take_lines(&self, input: &[u8], limits: &Limits) -> Result<(), ParseError> {
        let method = self.method.range().start;
        let line = self.target.range().end + " HTTP/1.1\r\n".len() - method;
        if line > limits.request_line_bytes_max {
            return Err(ParseError::RequestLineTooLong);
        }
        if input.len() > limits.head_bytes_max {
            return Err(ParseError::HeadTooLarge);
        }
        match &input[..method] {
            b"" | b"\r\n" => Ok(()),
            _ => Err(ParseError::LineEnd),
        }
    }

    /// Notes every field, and checks that each line before a field ends in CR LF.
    fn take_fields(
        &mut self,
        raw: &[httparse::Header<'_>],
        input: &[u8],
    ) -> Result<(), ParseError> {
        self.fields.clear();
        self.known = Places::default();
        let mut underscored = false;
        for (place, field) in raw.iter().enumerate() {
            let name = Span::of(field.name.as_bytes(), input);
            if !input[..name.range().start].ends_with(b"\r\n") {
                return Err(ParseError::LineEnd);
            }
            if let Some(known) = KnownField::from_name(field.name.as_bytes())
                && !self.known.note(known, place)
                && known.stands_once()
            {
                return Err(ParseError::DuplicateField);
            }
            underscored |= field.name.as_bytes().contains(&b'_');
            self.fields.push((name, Span::of(field.value, input)));
        }
        if !input.ends_with(b"\r\n\r\n") {
            return Err(ParseError::LineEnd);
        }
        if underscored && self.names_collide(input) {
            Err(ParseError::CollidingNames)
        } else {
            Ok(())
        }
    }

    /// Whether two names become equal if `-` is written as `_`, as in the environment of CGI and Rack. Such a variant
    /// of a framing field is refused even if the field itself is absent.
    fn names_collide(&self, input: &[u8]) -> bool {
        const FRAMING: [KnownField; 2] = [KnownField::ContentLength, KnownField::TransferEncoding];
        let names = || self.fields.iter().map(|(name, _)| &input[name.range()]);
        let doubles = |(place, name): (usize, &[u8])| {
            let other = |(at, other): (usize, &[u8])| {
                at != place && field::collide(name, other) && !name.eq_ignore_ascii_case(other)
            };
            name.contains(&b'_')
                && (FRAMING.iter().any(|known| field::collide(name, known.name()))
                    || names().enumerate().any(other))
        };
        names().enumerate().any(doubles)
    }

    fn take_method(&self, input: &[u8]) -> Result<(), ParseError> {
        let method = &input[self.method.range()];
        if !method.iter().all(|byte| byte.is_ascii_uppercase() || matches!(byte, b'-' | b'_')) {
            return Err(ParseError::Method);
        }
        match method {
            b"CONNECT" | b"TRACE" => Err(ParseError::ForbiddenMethod),
            _ => Ok(()),
        }
    }

    /// Locates the path and the query of an origin-form or absolute-form target. `*` counts as a path.
    fn take_target(&mut self, input: &[u8]) -> Result<(), ParseError> {
        let target = &input[self.target.range()];
        if !target.iter().all(|byte| token::is_target(*byte)) {
            return Err(ParseError::Target);
        }
        self.host = None;
        let path = match target {
            [b'/', ..] => 0,
            b"*" if &input[self.method.range()] == b"OPTIONS" => 0,
            _ => self.take_authority(target)?,
        };
        let question = target[path..].iter().position(|byte| *byte == b'?').map(|at| path + at);
        self.path = self.target.cut(path..question.unwrap_or(target.len()));
        self.query = question.map(|at| self.target.cut(at + 1..target.len()));
        if path::is_sound(&input[self.path.range()]) { Ok(()) } else { Err(ParseError::Path) }
    }

    /// Notes the host of `http://host/path`, and returns the offset of the path.
    fn take_authority(&mut self, target: &[u8]) -> Result<usize, ParseError> {
        let schemes: [&[u8]; 2] = [b"http://", b"https://"];
        let is_prefix = |scheme: &&&[u8]| {
            target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        };
        let start = schemes.iter().find(is_prefix).ok_or(ParseError::Target)?.len();
        let ends = |byte: &u8| matches!(byte, b'/' | b'?');
        let length = target[start..].iter().position(ends).unwrap_or(target.len() - start);
        self.host = Some(self.target.cut(start..start + length));
        Ok(start + length)
    }

    /// Notes the host. The target's host takes precedence over the field (RFC 9112, section 3.2.2), but both must be
    /// well formed.
    fn take_host(&mut self, input: &[u8]) -> Result<(), ParseError> {
        let field = self.known.of(KnownField::Host).map(|place| self.fields[place].1);
        if field.is_none() && self.version == Version::Http11 {
            return Err(ParseError::MissingHost);
        }
        if field.iter().chain(&self.host).any(|span| !host::is_valid(&input[span.range()])) {
            return Err(ParseError::Host);
        }
        self.host = self.host.or(field);
        Ok(())
    }

    fn take_framing(&mut self, input: &[u8]) -> Result<(), ParseError> {
        let value = |known| self.known.of(known).map(|place| &input[self.fields[place].1.range()]);
        self.framing = match (value(KnownField::TransferEncoding), value(KnownField::ContentLength))
        {
            (Some(_), Some(_)) => return Err(ParseError::AmbiguousLength),
            (Some(_), None) if self.version == Version::Http10 => {
                return Err(ParseError::AmbiguousLength);
            }
            (Some(coding), None) if coding.eq_ignore_ascii_case(b"chunked") => {
                RequestFraming::Chunked
            }
            (Some(_), None) => return Err(ParseError::TransferCoding),
            (None, Some(length)) => RequestFraming::Length(content_length(length)?),
            (None, None) => RequestFraming::None,
        };
        Ok(())
    }

    fn take_connection(&mut self, input: &[u8]) -> Result<(), ParseError> {
        let (mut close, mut keep, mut upgrades) = (false, false, false);
        let first = self.known.of(KnownField::Connection).unwrap_or(self.fields.len());
        for (name, value) in &self.fields[first..] {
            if KnownField::from_name(&input[name.range()]) != Some(KnownField::Connection) {
                continue;
            }
            for member in field::members(&input[value.range()]) {
                close |= member.eq_ignore_ascii_case(b"close");
                keep |= member.eq_ignore_ascii_case(b"keep-alive");
                upgrades |= member.eq_ignore_ascii_case(b"upgrade");
            }
        }
        if upgrades {
            self.check_websocket_key(input)?;
        }
        self.is_persistent = !close && (keep || self.version == Version::Http11);
        let expect = self.known.of(KnownField::Expect).map(|place| self.fields[place].1);
        self.expects_continue = match expect.map(|span| &input[span.range()]) {
            None => false,
            Some(value) if value.eq_ignore_ascii_case(b"100-continue") => {
                self.version == Version::Http11
            }
            Some(_) => return Err(ParseError::Expectation),
        };
        Ok(())
    }
}

impl Head {
    /// Checks that the key of a WebSocket handshake appears once, and is the base64 form of 16 bytes (RFC 6455, section
    /// 4.2.1).
    fn check_websocket_key(&self, input: &[u8]) -> Result<(), ParseError> {
        let values = |wanted: &'static [u8]| {
            let fields = self.fields.iter().map(|(name, value)| (name.range(), value.range()));
            let named =
                fields.filter(move |(name, _)| input[name.clone()].eq_ignore_ascii_case(wanted));
            named.map(|(_, value)| &input[value])
        };
        let is_websocket =
            |list| field::members(list).any(|one| one.eq_ignore_ascii_case(b"websocket"));
        let mut keys = values(b"sec-websocket-key");
        match (keys.next(), keys.next()) {
            (None, _) => Ok(()),
            _ if !values(b"upgrade").any(is_websocket) => Ok(()),
            (Some(key), None) if is_websocket_key(key) => Ok(()),
            _ => Err(ParseError::WebSocketKey),
        }
    }
}

/// Whether the key is the base64 form of 16 bytes.
fn is_websocket_key(key: &[u8]) -> bool {
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    key.len() == 24 && key.strip_suffix(b"==").is_some_and(|digits| digits.iter().all(is_digit))
}

/// Whether the bytes after `seen` may complete the empty line that ends the head.
fn may_end(input: &[u8], seen: usize) -> bool {
    let fresh = &input[seen.saturating_sub(3).min(input.len())..];
    fresh.windows(2).any(|two| two == b"\n\n") || fresh.windows(3).any(|three| three == b"\n\r\n")
}

/// Checks that an incomplete head is within its limits.
fn within(input: &[u8], limits: &Limits) -> Result<(), ParseError> {
    let line = &input[..input.len().min(limits.request_line_bytes_max)];
    if input.len() > limits.request_line_bytes_max && !line.contains(&b'\n') {
        return Err(ParseError::RequestLineTooLong);
    }
    if input.len() >= limits.head_bytes_max { Err(ParseError::HeadTooLarge) } else { Ok(()) }
}

fn from_httparse(error: httparse::Error, input: &[u8], limits: &Limits) -> ParseError {
    match error {
        httparse::Error::TooManyHeaders => ParseError::TooManyFields,
        httparse::Error::HeaderName => ParseError::FieldName,
        httparse::Error::HeaderValue => ParseError::FieldValue,
        httparse::Error::NewLine => ParseError::LineEnd,
        httparse::Error::Version => ParseError::Version,
        httparse::Error::Token | httparse::Error::Status => match within(input, limits) {
            Err(limit @ ParseError::RequestLineTooLong) => limit,
            _ => ParseError::RequestLine,
        },
    }
}

/// Returns the position of the minor digit of a version such as HTTP/1.2.
fn later_minor(input: &[u8]) -> Option<usize> {
    let start = input.len() - input.trim_ascii_start().len();
    let line = input[start..].split(|byte| matches!(byte, b'\r' | b'\n')).next()?;
    let minor = line.last().filter(|minor| matches!(minor, b'2'..=b'9'));
    (minor.is_some() && line[..line.len() - 1].ends_with(b" HTTP/1."))
        .then(|| start + line.len() - 1)
}

/// Distinguishes an unsupported version from a malformed line.
fn version_error(input: &[u8]) -> ParseError {
    let line = input.trim_ascii_start().split(|byte| matches!(byte, b'\r' | b'\n')).next();
    let version = line.and_then(|line| line.split(|byte| *byte == b' ').nth(2));
    match version.and_then(|version| version.strip_prefix(b"HTTP/")) {
        Some([major]) | Some([major, b'.']) if major.is_ascii_digit() => {
            ParseError::UnsupportedVersion
        }
        Some([major, b'.', minor]) if major.is_ascii_digit() && minor.is_ascii_digit() => {
            ParseError::UnsupportedVersion
        }
        _ => ParseError::Version,
    }
}

/// Parses a `Content-Length`, which must fit into an `i64`, as the size of a file does.
fn content_length(digits: &[u8]) -> Result<u64, ParseError> {
    let length = decimal::parse(digits).filter(|length| i64::try_from(*length).is_ok());
    length.ok_or(ParseError::ContentLength)
}

#[cfg(test)]
mod tests;
