//! `Cache-Control` (RFC 9111, section 5.2).

/// The maximum time in seconds, 68 years. A longer time counts as this maximum.
pub const SECONDS_MAX: u32 = i32::MAX.unsigned_abs();

/// The directives of a response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResponseDirectives {
    /// `no-store`
    pub no_store: bool,
    /// `private`, with or without field names.
    pub private: bool,
    /// `public`
    pub public: bool,
    /// `no-cache`, with or without field names.
    pub no_cache: bool,
    /// `must-revalidate` or `proxy-revalidate`
    pub must_revalidate: bool,
    /// `must-understand`
    pub must_understand: bool,
    /// `s-maxage` in seconds; zero if its value is malformed.
    pub s_maxage: Option<u32>,
    /// `max-age` in seconds; zero if its value is malformed.
    pub max_age: Option<u32>,
    /// `stale-while-revalidate` in seconds.
    pub stale_while_revalidate: u32,
    /// `stale-if-error` in seconds.
    pub stale_if_error: u32,
}

/// The directives of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestDirectives {
    /// `no-store`
    pub no_store: bool,
    /// `no-cache`, or `Pragma: no-cache` without any `Cache-Control`.
    pub no_cache: bool,
    /// `only-if-cached`
    pub only_if_cached: bool,
    /// `max-age` in seconds.
    pub max_age: Option<u32>,
    /// `min-fresh` in seconds.
    pub min_fresh: u32,
    /// `max-stale` in seconds; [`SECONDS_MAX`] without a value.
    pub max_stale: u32,
}

impl ResponseDirectives {
    /// Adds the directives in the value of one `Cache-Control` line.
    pub fn add(&mut self, value: &[u8]) {
        for_each(value, |name, argument| {
            let is = |wanted: &[u8]| name.eq_ignore_ascii_case(wanted);
            if is(b"no-store") {
                self.no_store = true;
            } else if is(b"private") {
                self.private = true;
            } else if is(b"public") {
                self.public = true;
            } else if is(b"no-cache") {
                self.no_cache = true;
            } else if is(b"must-revalidate") || is(b"proxy-revalidate") {
                self.must_revalidate = true;
            } else if is(b"must-understand") {
                self.must_understand = true;
            } else if is(b"s-maxage") {
                // The shortest of several values is the safe one.
                self.s_maxage = Some(lower(self.s_maxage, seconds(argument).unwrap_or(0)));
            } else if is(b"max-age") {
                self.max_age = Some(lower(self.max_age, seconds(argument).unwrap_or(0)));
            } else if is(b"stale-while-revalidate") {
                self.stale_while_revalidate = seconds(argument).unwrap_or(0);
            } else if is(b"stale-if-error") {
                self.stale_if_error = seconds(argument).unwrap_or(0);
            }
        });
    }
}

impl RequestDirectives {
    /// Adds the directives in the value of one `Cache-Control` line.
    pub fn add(&mut self, value: &[u8]) {
        for_each(value, |name, argument| {
            let is = |wanted: &[u8]| name.eq_ignore_ascii_case(wanted);
            if is(b"no-store") {
                self.no_store = true;
            } else if is(b"no-cache") {
                self.no_cache = true;
            } else if is(b"only-if-cached") {
                self.only_if_cached = true;
            } else if is(b"max-age") {
                self.max_age = Some(lower(self.max_age, seconds(argument).unwrap_or(0)));
            } else if is(b"min-fresh") {
                self.min_fresh = seconds(argument).unwrap_or(0);
            } else if is(b"max-stale") {
                self.max_stale = match argument {
                    None => SECONDS_MAX,
                    Some(_) => seconds(argument).unwrap_or(0),
                };
            }
        });
    }
}

fn lower(one: Option<u32>, other: u32) -> u32 {
    one.map_or(other, |one| one.min(other))
}

/// Calls `take` with the name of each directive and its argument, without quotes.
fn for_each<'a>(value: &'a [u8], mut take: impl FnMut(&'a [u8], Option<&'a [u8]>)) {
    let mut rest = value;
    while !rest.is_empty() {
        let (directive, after) = split_member(rest);
        rest = after;
        let equals = directive.iter().position(|byte| *byte == b'=');
        let (name, argument) = match equals {
            Some(at) => (&directive[..at], Some(unquoted(&directive[at + 1..]))),
            None => (directive, None),
        };
        take(name.trim_ascii(), argument);
    }
}

/// Splits at the first comma that is not in a quoted string.
fn split_member(list: &[u8]) -> (&[u8], &[u8]) {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, byte) in list.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b',' if !is_quoted => return (list[..at].trim_ascii(), &list[at + 1..]),
            _ => {}
        }
    }
    (list.trim_ascii(), &[])
}

fn unquoted(argument: &[u8]) -> &[u8] {
    let inner = argument.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    inner.unwrap_or(argument)
}

/// A number of seconds, at most [`SECONDS_MAX`]; `None` if the text has characters other than digits.
pub(crate) fn seconds(argument: Option<&[u8]>) -> Option<u32> {
    let digits = argument.filter(|digits| !digits.is_empty())?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digit = |number: u32, byte: &u8| {
        number.checked_mul(10)?.checked_add(u32::from(byte - b'0')).filter(|it| *it < SECONDS_MAX)
    };
    Some(digits.iter().try_fold(0, digit).unwrap_or(SECONDS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(value: &str) -> ResponseDirectives {
        let mut directives = ResponseDirectives::default();
        directives.add(value.as_bytes());
        directives
    }

    #[test]
    fn ages_are_read_as_digits_and_nothing_else() {
        for (text, age) in [
            ("max-age=60", Some(60)),
            ("MaX-aGe=60", Some(60)),
            ("public, max-age=\"60\"", Some(60)),
            ("max-age=007", Some(7)),
            ("max-age=99999999999999999999", Some(SECONDS_MAX)),
            ("max-age=-1", Some(0)),
            ("max-age=1.5", Some(0)),
            ("max-age=a60", Some(0)),
            ("max-age='60'", Some(0)),
            ("max-age=", Some(0)),
            ("max-age", Some(0)),
            ("max-age=60, max-age=5", Some(5)),
            ("max-age=5, max-age=60", Some(5)),
            ("foo=\"max-age=60\"", None),
            ("foo=\"a, max-age=60\"", None),
            ("foo=\"a\\\", max-age=60\"", None),
            ("xmax-age=60", None),
            ("max-age-x=60", None),
            ("", None),
        ] {
            assert_eq!(response(text).max_age, age, "{text}");
        }
    }

    #[test]
    fn directives_with_field_names_count_as_those_without() {
        let directives =
            response(" private=\"x-a, x-b\" ,, NO-CACHE=\"set-cookie\",must-revalidate");
        assert!(directives.private && directives.no_cache && directives.must_revalidate);
        assert!(!directives.public && !directives.no_store);
    }

    #[test]
    fn a_request_may_accept_any_staleness() {
        let mut directives = RequestDirectives::default();
        directives.add(b"max-stale, min-fresh=5");
        assert_eq!((directives.max_stale, directives.min_fresh), (SECONDS_MAX, 5));
        directives.add(b"max-stale=7");
        assert_eq!(directives.max_stale, 7);
    }
}
