//! A stored response as bytes.

use std::ops::Range;

use thruway_http1::field::members;

use crate::conditions::Validators;
use crate::policy::Freshness;

const WORD: usize = size_of::<u64>();

/// The number of words before the name.
const HEADER_WORDS: usize = 7;
const HEADER_BYTES: usize = HEADER_WORDS * WORD;

/// The kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Response,
    /// The names of the fields by which the responses to a URL vary.
    VaryList,
}

/// The parts of a record to be written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parts<'a> {
    pub(crate) kind: Kind,
    /// The whole name, which begins with the URL.
    pub(crate) name: &'a [u8],
    pub(crate) url_bytes: usize,
    pub(crate) status: u16,
    pub(crate) freshness: Freshness,
    /// The moment at which the request began, in the order of invalidations.
    pub(crate) sequence: u64,
    pub(crate) stored_ms: u64,
    /// Field lines, each with its line break.
    pub(crate) lines: &'a [u8],
    pub(crate) body: &'a [u8],
}

/// A copy of a record, read from the ring.
#[derive(Debug, Clone, Default)]
pub struct StoredResponse {
    bytes: Vec<u8>,
}

impl Parts<'_> {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let freshness = self.freshness;
        let pair = |low: u64, high: u64| low | high << 32;
        let flags = u64::from(freshness.no_cache)
            | u64::from(freshness.must_revalidate) << 1
            | u64::from(self.kind == Kind::VaryList) << 2;
        let header: [u64; HEADER_WORDS] = [
            self.sequence,
            self.stored_ms,
            pair(freshness.lifetime_s.into(), freshness.initial_age_s.into()),
            pair(freshness.stale_while_revalidate_s.into(), freshness.stale_if_error_s.into()),
            pair(self.status.into(), flags),
            pair(self.url_bytes as u64, self.name.len() as u64),
            pair(self.lines.len() as u64, self.body.len() as u64),
        ];
        let length = HEADER_BYTES + self.name.len() + self.lines.len() + self.body.len();
        let mut bytes = Vec::with_capacity(length);
        header.iter().for_each(|word| bytes.extend_from_slice(&word.to_ne_bytes()));
        for part in [self.name, self.lines, self.body] {
            bytes.extend_from_slice(part);
        }
        bytes
    }
}

impl StoredResponse {
    /// Parses the bytes of a record; `None` if they are malformed.
    pub(crate) fn new(bytes: Vec<u8>) -> Option<Self> {
        let record = Self { bytes };
        let is_whole = record.bytes.len() >= HEADER_BYTES
            && record.body_range().end == record.bytes.len()
            && record.low(5) <= record.high(5);
        is_whole.then_some(record)
    }

    /// Returns the response with another head, stored at `now_ms`.
    #[must_use]
    pub fn with_head(&self, lines: &[u8], freshness: Freshness, now_ms: u64) -> Self {
        let parts = Parts {
            kind: Kind::Response,
            name: self.name(),
            url_bytes: self.low(5),
            status: self.status(),
            freshness,
            sequence: self.sequence(),
            stored_ms: now_ms,
            lines,
            body: self.body(),
        };
        Self { bytes: parts.to_bytes() }
    }

    /// Returns the memory, which the next record can use.
    #[must_use]
    pub fn into_buffer(self) -> Vec<u8> {
        self.bytes
    }

    /// Returns the status.
    #[must_use]
    pub fn status(&self) -> u16 {
        u16::try_from(self.low(4)).unwrap_or(0)
    }

    /// Returns the times of the response.
    #[must_use]
    pub fn freshness(&self) -> Freshness {
        let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let flags = self.high(4);
        Freshness {
            lifetime_s: number(self.low(2)),
            initial_age_s: number(self.high(2)),
            stale_while_revalidate_s: number(self.low(3)),
            stale_if_error_s: number(self.high(3)),
            no_cache: flags & 1 != 0,
            must_revalidate: flags & 2 != 0,
        }
    }

    /// Returns the seconds since the response was stored.
    #[must_use]
    pub fn resident_s(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.word(1)) / 1000
    }

    /// Returns the field lines of the head, each with its line break.
    #[must_use]
    pub fn lines(&self) -> &[u8] {
        let start = HEADER_BYTES + self.high(5);
        &self.bytes[start..start + self.low(6)]
    }

    /// Returns the fields of the head.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
        fields(self.lines())
    }

    /// Returns the body.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.bytes[self.body_range()]
    }

    /// Returns the validators.
    #[must_use]
    pub fn validators(&self) -> Validators<'_> {
        let mut validators = Validators::default();
        for (name, value) in self.fields() {
            let is = |wanted: &[u8]| name.eq_ignore_ascii_case(wanted);
            match name.len() {
                4 if is(b"etag") => validators.etag = Some(value),
                4 if is(b"date") => validators.date = Some(value),
                13 if is(b"last-modified") => validators.last_modified = Some(value),
                _ => {}
            }
        }
        validators
    }

    pub(crate) fn kind(&self) -> Kind {
        if self.high(4) & 4 == 0 { Kind::Response } else { Kind::VaryList }
    }

    pub(crate) fn sequence(&self) -> u64 {
        self.word(0)
    }

    pub(crate) fn name(&self) -> &[u8] {
        &self.bytes[HEADER_BYTES..HEADER_BYTES + self.high(5)]
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn body_range(&self) -> Range<usize> {
        let start = HEADER_BYTES + self.high(5) + self.low(6);
        start..start + self.high(6)
    }

    fn word(&self, at: usize) -> u64 {
        let mut word = [0; WORD];
        word.copy_from_slice(&self.bytes[at * WORD..(at + 1) * WORD]);
        u64::from_ne_bytes(word)
    }

    fn low(&self, at: usize) -> usize {
        usize::try_from(self.word(at) & 0xffff_ffff).unwrap_or(0)
    }

    fn high(&self, at: usize) -> usize {
        usize::try_from(self.word(at) >> 32).unwrap_or(0)
    }
}

/// The URL in the first bytes of a record, and whether the record is a response. The bytes may be those of any record.
pub(crate) fn peeked(bytes: &[u8]) -> Option<(&[u8], bool)> {
    let word = |at: usize| {
        let bytes = bytes.get(at * WORD..(at + 1) * WORD)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    };
    let (lengths, is_list) = (word(5)?, word(4)? >> 32 & 4 != 0);
    let url_bytes = usize::try_from(lengths & 0xffff_ffff).ok()?;
    Some((bytes.get(HEADER_BYTES..HEADER_BYTES.checked_add(url_bytes)?)?, !is_list))
}

/// Returns the names and values of field lines.
pub fn fields(lines: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
    lines.split(|byte| *byte == b'\n').filter_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        Some((&line[..colon], line[colon + 1..].trim_ascii()))
    })
}

/// Appends a field line.
pub fn push_line(lines: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    for part in [name, b": ", value, b"\r\n"] {
        lines.extend_from_slice(part);
    }
}

/// Fields that belong to one connection or message rather than to the content (RFC 9110, section 7.6.1; RFC 9111,
/// section 3.1).
const NOT_STORED: [&[u8]; 13] = [
    b"connection",
    b"keep-alive",
    b"proxy-connection",
    b"transfer-encoding",
    b"te",
    b"trailer",
    b"upgrade",
    b"content-length",
    b"age",
    b"cache-status",
    b"proxy-authenticate",
    b"proxy-authentication-info",
    b"proxy-authorization",
];

/// Writes the fields of a response that are stored: all except those of the connection, and those that `Connection`
/// names. The date comes first.
pub fn stored_lines<'a>(fields: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone) -> Vec<u8> {
    let connection = fields.clone().filter(|(name, _)| name.eq_ignore_ascii_case(b"connection"));
    let named: Vec<_> = connection.flat_map(|(_, value)| members(value)).collect();
    let is_dropped = |name: &[u8]| {
        let mut all = NOT_STORED.iter().copied().chain(named.iter().copied());
        all.any(|dropped| dropped.eq_ignore_ascii_case(name))
    };
    date_first(fields.filter(|(name, _)| !is_dropped(name)))
}

fn date_first<'a>(fields: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone) -> Vec<u8> {
    let is_date = |name: &[u8]| name.eq_ignore_ascii_case(b"date");
    let mut lines = Vec::new();
    if let Some((name, value)) = fields.clone().find(|(name, _)| is_date(name)) {
        push_line(&mut lines, name, value);
    }
    for (name, value) in fields.filter(|(name, _)| !is_date(name)) {
        push_line(&mut lines, name, value);
    }
    lines
}

/// Fields of a stored response that a 304 does not change (RFC 9111, section 3.2).
const NOT_UPDATED: [&[u8]; 4] =
    [b"content-encoding", b"content-type", b"content-range", b"content-length"];

/// Writes the fields of a stored response after a 304, whose fields replace those with the same names.
pub fn updated_lines<'a>(
    stored: &[u8],
    news: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
) -> Vec<u8> {
    let news = stored_lines(news);
    let is_kept = |name: &[u8]| NOT_UPDATED.iter().any(|kept| kept.eq_ignore_ascii_case(name));
    let news = || fields(&news).filter(|(name, _)| !is_kept(name));
    let is_new = |name: &[u8]| news().any(|(new, _)| new.eq_ignore_ascii_case(name));
    date_first(fields(stored).filter(|(name, _)| !is_new(name)).chain(news()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_as_it_was_written() {
        let freshness = Freshness {
            lifetime_s: 60,
            initial_age_s: 3,
            stale_while_revalidate_s: 7,
            stale_if_error_s: u32::MAX,
            no_cache: false,
            must_revalidate: true,
        };
        let parts = Parts {
            kind: Kind::Response,
            name: b"http://a/\n\nx",
            url_bytes: 9,
            status: 404,
            freshness,
            sequence: 5,
            stored_ms: 10_000,
            lines: b"ETag: \"a\"\r\nDate: then\r\n",
            body: b"body",
        };
        let record = StoredResponse::new(parts.to_bytes()).unwrap();
        assert_eq!((record.status(), record.freshness(), record.sequence()), (404, freshness, 5));
        assert_eq!((record.lines(), record.body()), (parts.lines, parts.body));
        assert_eq!((record.name(), record.kind()), (parts.name, Kind::Response));
        assert_eq!((record.resident_s(12_999), record.resident_s(1)), (2, 0));
        assert_eq!(record.validators().etag, Some(&b"\"a\""[..]));
        assert_eq!(peeked(record.bytes()), Some((&b"http://a/"[..], true)));
        for length in 0..record.bytes().len() {
            assert!(StoredResponse::new(record.bytes()[..length].to_vec()).is_none(), "{length}");
        }
    }

    #[test]
    fn fields_of_the_connection_are_not_stored() {
        let lines = b"Date: d\r\nConnection: close, X-Hop\r\nx-hop: 1\r\nAge: 4\r\nX-A: b\r\n";
        assert_eq!(stored_lines(fields(lines)), b"Date: d\r\nX-A: b\r\n");
    }

    #[test]
    fn a_304_updates_all_fields_but_those_of_the_content() {
        let stored = b"Date: d\r\nContent-Type: a\r\nX-A: 1\r\nX-A: 2\r\nX-B: b\r\n";
        let news = b"date: e\r\ncontent-type: b\r\nx-a: 3\r\nConnection: close\r\n";
        let lines = updated_lines(stored, fields(news));
        assert_eq!(lines, b"date: e\r\nContent-Type: a\r\nX-B: b\r\nx-a: 3\r\n");
    }
}
