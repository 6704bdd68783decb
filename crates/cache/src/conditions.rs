//! Conditional requests on a stored response (RFC 9110, section 13).

use thruway_http1::date;
use thruway_http1::field::entity_tags;

/// The conditions of a request that a cache can decide.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Conditions<'a> {
    /// `If-None-Match`
    pub if_none_match: Option<&'a [u8]>,
    /// `If-Modified-Since`
    pub if_modified_since: Option<&'a [u8]>,
    /// `If-Range`
    pub if_range: Option<&'a [u8]>,
}

/// The validators of a stored response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Validators<'a> {
    /// `ETag`
    pub etag: Option<&'a [u8]>,
    /// `Last-Modified`
    pub last_modified: Option<&'a [u8]>,
    /// `Date`
    pub date: Option<&'a [u8]>,
}

impl Conditions<'_> {
    /// Whether the client already has the response and gets a 304.
    #[must_use]
    pub fn is_known(&self, stored: Validators<'_>) -> bool {
        if let Some(tags) = self.if_none_match {
            return tags.trim_ascii() == b"*"
                || stored
                    .etag
                    .is_some_and(|own| entity_tags(tags).any(|tag| weak(tag) == weak(own)));
        }
        let Some(since_s) = self.if_modified_since.and_then(date::parse) else { return false };
        let modified = stored.last_modified.or(stored.date);
        modified.and_then(date::parse).is_some_and(|modified_s| modified_s <= since_s)
    }

    /// Whether the client's range applies to the stored response.
    #[must_use]
    pub fn allows_range(&self, stored: Validators<'_>) -> bool {
        match self.if_range.map(<[u8]>::trim_ascii) {
            None => true,
            Some(tag) if tag.starts_with(b"\"") => stored.etag == Some(tag),
            // A weak tag is not a date either.
            Some(text) => {
                let asked_s = date::parse(text);
                asked_s.is_some() && asked_s == stored.last_modified.and_then(date::parse)
            }
        }
    }
}

fn weak(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_compared_weakly_and_go_before_dates() {
        let stored = Validators {
            etag: Some(b"\"a\""),
            last_modified: Some(b"Sun, 06 Nov 1994 08:49:37 GMT"),
            date: None,
        };
        for (tags, since, is_known) in [
            (Some("\"a\""), None, true),
            (Some("W/\"a\""), None, true),
            (Some("\"x, y\", \"a\""), None, true),
            (Some("*"), None, true),
            (Some("\"b\""), Some("Sun, 06 Nov 1994 08:49:37 GMT"), false),
            (Some("a"), None, false),
            (None, Some("Sun, 06 Nov 1994 08:49:37 GMT"), true),
            (None, Some("Sun, 06 Nov 1994 08:49:36 GMT"), false),
            (None, Some("yesterday"), false),
            (None, None, false),
        ] {
            let conditions = Conditions {
                if_none_match: tags.map(str::as_bytes),
                if_modified_since: since.map(str::as_bytes),
                if_range: None,
            };
            assert_eq!(conditions.is_known(stored), is_known, "{tags:?} {since:?}");
        }
    }

    #[test]
    fn a_range_is_of_the_same_strong_response() {
        let stored = Validators {
            etag: Some(b"\"a\""),
            last_modified: Some(b"Sun, 06 Nov 1994 08:49:37 GMT"),
            date: None,
        };
        for (text, is_allowed) in [
            (None, true),
            (Some("\"a\""), true),
            (Some("\"b\""), false),
            (Some("W/\"a\""), false),
            (Some("Sun, 06 Nov 1994 08:49:37 GMT"), true),
            (Some("Sun, 06 Nov 1994 08:49:38 GMT"), false),
            (Some(""), false),
        ] {
            let if_range = text.map(str::as_bytes);
            let conditions = Conditions { if_range, ..Conditions::default() };
            assert_eq!(conditions.allows_range(stored), is_allowed, "{text:?}");
        }
    }
}
