//! Decides whether a client already has the current state of a file: entity tags, dates and conditional requests.

use thruway_http1::field::entity_tags;
use thruway_http1::{KnownField, Request, date};
use thruway_resolve::OpenFile;

/// Validators, which distinguish one state of a file from another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Validators {
    /// A strong entity tag, quotes included.
    pub(super) tag: Vec<u8>,
    /// Seconds since 1970.
    pub(super) modified_seconds: u64,
}

/// The result of a request's conditions (RFC 9110, 13.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Send the file.
    Send,
    /// Respond with 304.
    NotModified,
    /// Respond with 412.
    Failed,
}

impl Validators {
    /// Derives validators from the stat of the open file. The coding is part of the tag, because each coding of one
    /// state has other bytes.
    pub(super) fn of(file: &OpenFile, coding: &str) -> Self {
        let (seconds, nanoseconds) = file.modified();
        let tag = tag((seconds, nanoseconds), file.size_bytes(), coding);
        Self { tag, modified_seconds: u64::try_from(seconds).unwrap_or(0) }
    }

    /// Evaluates the request's conditions in the order of their precedence.
    pub(super) fn verdict(&self, request: &Request<'_>) -> Verdict {
        let failed = match request.known(KnownField::IfMatch) {
            Some(tags) => !self.is_listed(tags, Compare::Strong),
            None => self.is_newer_than(request.known(KnownField::IfUnmodifiedSince)) == Some(true),
        };
        if failed {
            return Verdict::Failed;
        }
        let is_known = match request.known(KnownField::IfNoneMatch) {
            Some(tags) => self.is_listed(tags, Compare::Weak),
            None => self.is_newer_than(request.known(KnownField::IfModifiedSince)) == Some(false),
        };
        if is_known { Verdict::NotModified } else { Verdict::Send }
    }

    /// Whether a `Range` applies to the current state of the file.
    pub(super) fn allows_range(&self, request: &Request<'_>) -> bool {
        match request.known(KnownField::IfRange) {
            None => true,
            Some(tag) if tag.starts_with(b"\"") => tag == self.tag,
            // A weak tag is not a date either.
            Some(text) => date::parse(text) == Some(self.modified_seconds),
        }
    }

    /// Whether the file is newer than a date; none without a valid date.
    fn is_newer_than(&self, text: Option<&[u8]>) -> Option<bool> {
        date::parse(text?).map(|seconds| self.modified_seconds > seconds)
    }

    fn is_listed(&self, tags: &[u8], compare: Compare) -> bool {
        tags.trim_ascii() == b"*" || entity_tags(tags).any(|tag| compare.matches(tag, &self.tag))
    }
}

/// The two comparisons of RFC 9110, 8.8.3.2. The tag of a file is always strong.
#[derive(Debug, Clone, Copy)]
enum Compare {
    Strong,
    Weak,
}

impl Compare {
    fn matches(self, listed: &[u8], own: &[u8]) -> bool {
        match (self, listed.strip_prefix(b"W/")) {
            (Self::Weak, Some(listed)) => listed == own,
            (Self::Strong, Some(_)) => false,
            (_, None) => listed == own,
        }
    }
}

/// Formats a tag: `"1a2b.3c-4d"`, or `"1a2b.3c-4d-gzip"`.
fn tag((seconds, nanoseconds): (i64, u32), size: u64, coding: &str) -> Vec<u8> {
    let mut tag = Vec::with_capacity(48);
    tag.push(b'"');
    hexadecimal(&mut tag, seconds.cast_unsigned());
    tag.push(b'.');
    hexadecimal(&mut tag, nanoseconds.into());
    tag.push(b'-');
    hexadecimal(&mut tag, size);
    if !coding.is_empty() {
        tag.push(b'-');
        tag.extend_from_slice(coding.as_bytes());
    }
    tag.push(b'"');
    tag
}

/// Writes a number as `format!` does, at a fraction of the cost: each response has a tag.
fn hexadecimal(text: &mut Vec<u8>, number: u64) {
    let digits = (u64::BITS - number.leading_zeros()).div_ceil(4).max(1);
    text.extend((0..digits).rev().map(|place| {
        let digit = usize::try_from(number >> (4 * place) & 15).unwrap_or(0);
        b"0123456789abcdef"[digit]
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use thruway_http1::{Head, Limits};

    /// The verdict on a file with tag `"a,b"` of the date in the middle.
    fn verdict(fields: &str) -> Verdict {
        with_request(fields, |validators, request| validators.verdict(request))
    }

    fn with_request<T>(fields: &str, ask: impl Fn(&Validators, &Request<'_>) -> T) -> T {
        let fields = fields
            .replace("EARLIER", "Sun, 06 Nov 1994 08:49:36 GMT")
            .replace("SAME", "Sun, 06 Nov 1994 08:49:37 GMT")
            .replace("LATER", "Sun, 06 Nov 1994 08:49:38 GMT");
        let bytes = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let mut head = Head::new();
        assert_eq!(head.parse(bytes.as_bytes(), 0, &Limits::default()), Ok(true));
        let validators = Validators { tag: "\"a,b\"".into(), modified_seconds: 784_111_777 };
        ask(&validators, &head.request(bytes.as_bytes()))
    }

    #[test]
    fn a_tag_is_made_of_size_and_time() {
        let cases =
            [(0, 0, 0), (1, 15, 16), (-1, 999_999_999, u64::MAX), (1_700_000_000, 1, 10_240)];
        for (seconds, nanoseconds, size) in cases {
            let plain = format!("\"{seconds:x}.{nanoseconds:x}-{size:x}\"");
            assert_eq!(tag((seconds, nanoseconds), size, ""), plain.as_bytes());
            let coded = format!("\"{seconds:x}.{nanoseconds:x}-{size:x}-br\"");
            assert_eq!(tag((seconds, nanoseconds), size, "br"), coded.as_bytes());
        }
    }

    #[test]
    fn a_tag_that_is_known_need_not_be_sent() {
        assert_eq!(verdict(""), Verdict::Send);
        assert_eq!(verdict("If-None-Match: \"x\", W/\"a,b\"\r\n"), Verdict::NotModified);
        assert_eq!(verdict("If-None-Match: \"a,b\"\r\n"), Verdict::NotModified);
        assert_eq!(verdict("If-None-Match: *\r\n"), Verdict::NotModified);
        assert_eq!(verdict("If-None-Match: \"a\", \"b\"\r\n"), Verdict::Send);
        assert_eq!(verdict("If-None-Match: a,b\r\n"), Verdict::Send);
    }

    #[test]
    fn a_tag_goes_before_a_date() {
        assert_eq!(verdict("If-Modified-Since: SAME\r\n"), Verdict::NotModified);
        assert_eq!(verdict("If-Modified-Since: LATER\r\n"), Verdict::NotModified);
        assert_eq!(verdict("If-Modified-Since: EARLIER\r\n"), Verdict::Send);
        assert_eq!(verdict("If-Modified-Since: once\r\n"), Verdict::Send);
        let both = "If-None-Match: \"x\"\r\nIf-Modified-Since: LATER\r\n";
        assert_eq!(verdict(both), Verdict::Send);
    }

    #[test]
    fn a_condition_that_fails_goes_before_all() {
        assert_eq!(verdict("If-Match: \"x\"\r\nIf-None-Match: \"a,b\"\r\n"), Verdict::Failed);
        assert_eq!(verdict("If-Match: W/\"a,b\"\r\n"), Verdict::Failed);
        assert_eq!(verdict("If-Match: \"x\", \"a,b\"\r\n"), Verdict::Send);
        assert_eq!(verdict("If-Match: *\r\n"), Verdict::Send);
        assert_eq!(verdict("If-Unmodified-Since: EARLIER\r\n"), Verdict::Failed);
        assert_eq!(verdict("If-Unmodified-Since: SAME\r\n"), Verdict::Send);
        let both = "If-Match: \"a,b\"\r\nIf-Unmodified-Since: EARLIER\r\n";
        assert_eq!(verdict(both), Verdict::Send);
    }

    #[test]
    fn a_range_is_of_one_state_only() {
        let allows = |fields| with_request(fields, |validators, r| validators.allows_range(r));
        assert!(allows(""));
        assert!(allows("If-Range: \"a,b\"\r\n"));
        assert!(!allows("If-Range: \"x\"\r\n"));
        assert!(!allows("If-Range: W/\"a,b\"\r\n"));
        assert!(allows("If-Range: SAME\r\n"));
        assert!(!allows("If-Range: LATER\r\n"));
        assert!(!allows("If-Range: once\r\n"));
    }
}
