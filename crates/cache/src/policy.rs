//! Decides which responses may be stored, and how long each is fresh (RFC 9111, sections 3 and 4.2).

use thruway_http1::response::reason;
use thruway_http1::{date, field};

use crate::directives::{ResponseDirectives, SECONDS_MAX, seconds};

/// The facts about a request that decide whether its response may be stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestFacts {
    /// Whether the method is GET.
    pub is_get: bool,
    /// Whether the request has an `Authorization` field.
    pub has_authorization: bool,
    /// Whether the request has a `Cookie` field.
    pub has_cookie: bool,
    /// `Cache-Control: no-store`
    pub no_store: bool,
}

/// The times of a stored response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Freshness {
    /// The seconds for which the response is fresh, counted from its generation by the application.
    pub lifetime_s: u32,
    /// The age of the response in seconds when it arrived.
    pub initial_age_s: u32,
    /// Seconds for which the stale response may be used while another request revalidates it.
    pub stale_while_revalidate_s: u32,
    /// Seconds for which the stale response may be used after an error of the application.
    pub stale_if_error_s: u32,
    /// Whether the response is not used without validation.
    pub no_cache: bool,
    /// Whether a client's `max-stale` does not apply to the response.
    pub must_revalidate: bool,
}

/// The reason why a response is not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The method is not GET.
    Method,
    /// The status is partial, not final, or unknown.
    Status,
    /// The request or the response says `no-store`.
    NoStore,
    /// The response is for one user: `private`, `Set-Cookie`, or an answer to `Authorization` or `Cookie`.
    Private,
    /// `Vary: *`
    VaryAny,
    /// The response has no lifetime, or can be neither fresh nor revalidated.
    NoLifetime,
    /// The body has a transfer coding, so its bytes are not the content.
    Coding,
}

/// The fields of a response that decide whether it is stored.
#[derive(Debug, Default)]
struct Facts {
    directives: ResponseDirectives,
    has_set_cookie: bool,
    varies_by_any: bool,
    has_validator: bool,
    is_coded: bool,
    date_s: Option<u64>,
    /// `None` without the field; an invalid or repeated date counts as expired.
    expires_s: Option<Option<u64>>,
    age_s: Option<u32>,
}

/// Returns how long a response stays fresh, if a shared cache may store the response. `now_s` is the time of its
/// arrival in seconds since 1970.
///
/// # Errors
/// The reason why the response may not be stored.
pub fn judge<'a>(
    request: RequestFacts,
    status: u16,
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    now_s: u64,
) -> Result<Freshness, Refusal> {
    if !request.is_get {
        return Err(Refusal::Method);
    }
    if !is_storable_status(status) {
        return Err(Refusal::Status);
    }
    let facts = Facts::of(fields);
    let directives = facts.directives;
    if directives.no_store || request.no_store {
        return Err(Refusal::NoStore);
    }
    if directives.private || facts.has_set_cookie || request.has_authorization {
        return Err(Refusal::Private);
    }
    if request.has_cookie && !directives.public && directives.s_maxage.is_none() {
        // The page may be meant for this user alone: an application that does not expect a shared cache does not say
        // so.
        return Err(Refusal::Private);
    }
    if facts.varies_by_any {
        return Err(Refusal::VaryAny);
    }
    if facts.is_coded {
        return Err(Refusal::Coding);
    }
    facts.freshness(now_s)
}

/// Whether a status is final, complete and known.
fn is_storable_status(status: u16) -> bool {
    (200..=599).contains(&status)
        && !matches!(status, 206 | 304 | 401 | 407)
        && !reason(status).is_empty()
}

impl Facts {
    fn of<'a>(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Self {
        let mut facts = Self::default();
        for (name, value) in fields {
            let is = |wanted: &[u8]| name.eq_ignore_ascii_case(wanted);
            match name.len() {
                3 if is(b"age") && facts.age_s.is_none() => facts.age_s = Some(age(value)),
                4 if is(b"date") => facts.date_s = date::parse(value),
                4 if is(b"etag") => facts.has_validator |= !value.is_empty(),
                4 if is(b"vary") => {
                    facts.varies_by_any |= field::members(value).any(|member| member == b"*");
                }
                7 if is(b"expires") => {
                    facts.expires_s =
                        Some(date::parse(value).filter(|_| facts.expires_s.is_none()));
                }
                10 if is(b"set-cookie") => facts.has_set_cookie = true,
                13 if is(b"cache-control") => facts.directives.add(value),
                13 if is(b"last-modified") => facts.has_validator |= date::parse(value).is_some(),
                17 if is(b"transfer-encoding") => {
                    let is_chunked = |one: &[u8]| one.eq_ignore_ascii_case(b"chunked");
                    facts.is_coded |= !field::members(value).all(is_chunked);
                }
                _ => {}
            }
        }
        facts
    }

    fn freshness(&self, now_s: u64) -> Result<Freshness, Refusal> {
        let directives = self.directives;
        let date_s = self.date_s.unwrap_or(now_s);
        let from_expires = || {
            let expires_s = self.expires_s?.unwrap_or(0);
            Some(u32::try_from(expires_s.saturating_sub(date_s)).unwrap_or(SECONDS_MAX))
        };
        let lifetime_s = directives.s_maxage.or(directives.max_age).or_else(from_expires);
        let is_checked = directives.no_cache && self.has_validator;
        let lifetime_s = lifetime_s.or(is_checked.then_some(0));
        let lifetime_s = lifetime_s.ok_or(Refusal::NoLifetime)?.min(SECONDS_MAX);
        let apparent_age_s = u32::try_from(now_s.saturating_sub(date_s)).unwrap_or(SECONDS_MAX);
        let initial_age_s = apparent_age_s.max(self.age_s.unwrap_or(0));
        let is_fresh = lifetime_s > initial_age_s && !directives.no_cache;
        let is_used_stale = directives.stale_while_revalidate > 0 || directives.stale_if_error > 0;
        if !is_fresh && !self.has_validator && !is_used_stale {
            return Err(Refusal::NoLifetime);
        }
        Ok(Freshness {
            lifetime_s,
            initial_age_s,
            stale_while_revalidate_s: directives.stale_while_revalidate,
            stale_if_error_s: directives.stale_if_error,
            no_cache: directives.no_cache,
            must_revalidate: directives.must_revalidate || directives.s_maxage.is_some(),
        }
        .without_stale_use(directives.must_revalidate || directives.no_cache))
    }
}

impl Freshness {
    fn without_stale_use(self, is_forbidden: bool) -> Self {
        if is_forbidden {
            Self { stale_while_revalidate_s: 0, stale_if_error_s: 0, ..self }
        } else {
            self
        }
    }
}

/// The first value of an `Age` field; a malformed value counts as zero.
fn age(value: &[u8]) -> u32 {
    let first = field::members(value).next();
    seconds(first).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: u64 = 784_111_777;
    const GET: RequestFacts =
        RequestFacts { is_get: true, has_authorization: false, has_cookie: false, no_store: false };

    fn judged(request: RequestFacts, status: u16, lines: &str) -> Result<Freshness, Refusal> {
        let fields = lines.split('|').filter_map(|line| line.split_once(": "));
        judge(request, status, fields.map(|(n, v)| (n.as_bytes(), v.as_bytes())), NOW_S)
    }

    #[test]
    fn only_what_names_its_lifetime_is_stored() {
        for (lines, lifetime) in [
            ("Cache-Control: max-age=60", Ok(60)),
            ("Cache-Control: max-age=60, s-maxage=7", Ok(7)),
            ("Cache-Control: s-maxage=60, max-age=0", Ok(60)),
            ("Expires: Sun, 06 Nov 1994 08:50:37 GMT", Ok(60)),
            ("Expires: Sun, 06 Nov 1994 08:50:37 GMT|Date: Sun, 06 Nov 1994 08:49:27 GMT", Ok(70)),
            ("Cache-Control: max-age=5|Expires: Sun, 06 Nov 1994 08:50:37 GMT", Ok(5)),
            ("Expires: 0", Err(Refusal::NoLifetime)),
            ("Expires: 0|ETag: \"a\"", Ok(0)),
            ("Cache-Control: public", Err(Refusal::NoLifetime)),
            ("ETag: \"a\"", Err(Refusal::NoLifetime)),
            ("Cache-Control: max-age=0", Err(Refusal::NoLifetime)),
            ("Cache-Control: max-age=0|ETag: \"a\"", Ok(0)),
            ("Cache-Control: no-cache, max-age=60|ETag: \"a\"", Ok(60)),
            ("Cache-Control: no-cache|ETag: \"a\"", Ok(0)),
            ("Cache-Control: max-age=60|Age: 5|Age: 60", Ok(60)),
            ("Cache-Control: no-cache, max-age=60", Err(Refusal::NoLifetime)),
            ("Cache-Control: max-age=60|Age: 60", Err(Refusal::NoLifetime)),
            ("Cache-Control: max-age=0, stale-while-revalidate=9", Ok(0)),
            ("", Err(Refusal::NoLifetime)),
        ] {
            let got = judged(GET, 200, lines).map(|freshness| freshness.lifetime_s);
            assert_eq!(got, lifetime, "{lines}");
        }
    }

    #[test]
    fn what_is_for_one_user_is_never_stored() {
        let of = |field: &str| format!("Cache-Control: max-age=60, public|{field}");
        for (field, refusal) in [
            ("Cache-Control: private", Refusal::Private),
            ("Cache-Control: private=\"x-a\"", Refusal::Private),
            ("Cache-Control: no-store", Refusal::NoStore),
            ("Set-Cookie: a=b", Refusal::Private),
            ("SET-COOKIE: ", Refusal::Private),
            ("Vary: accept, *", Refusal::VaryAny),
            ("Transfer-Encoding: gzip", Refusal::Coding),
        ] {
            assert_eq!(judged(GET, 200, &of(field)), Err(refusal), "{field}");
        }
        assert!(judged(GET, 200, &of("Transfer-Encoding: chunked")).is_ok());
        let named = RequestFacts { has_authorization: true, ..GET };
        assert_eq!(judged(named, 200, &of("X-A: b")), Err(Refusal::Private));
        let post = RequestFacts { is_get: false, ..GET };
        assert_eq!(judged(post, 200, &of("X-A: b")), Err(Refusal::Method));
        let secret = RequestFacts { no_store: true, ..GET };
        assert_eq!(judged(secret, 200, &of("X-A: b")), Err(Refusal::NoStore));
    }

    #[test]
    fn a_page_for_a_visitor_with_a_cookie_must_say_that_it_is_public() {
        let visitor = RequestFacts { has_cookie: true, ..GET };
        for (control, is_stored) in
            [("max-age=60", false), ("max-age=60, public", true), ("s-maxage=60", true)]
        {
            let got = judged(visitor, 200, &format!("Cache-Control: {control}"));
            assert_eq!(got.is_ok(), is_stored, "{control}");
        }
    }

    #[test]
    fn statuses_that_are_partial_unknown_or_not_final_are_not_stored() {
        for (status, is_stored) in [
            (200, true),
            (203, true),
            (204, true),
            (301, true),
            (302, true),
            (404, true),
            (410, true),
            (503, true),
            (101, false),
            (206, false),
            (304, false),
            (401, false),
            (299, false),
            (599, false),
            (700, false),
        ] {
            let got = judged(GET, status, "Cache-Control: max-age=60");
            assert_eq!(got.is_ok(), is_stored, "{status}");
        }
    }

    #[test]
    fn ages_add_up_and_stale_use_needs_permission() {
        let lines = "Cache-Control: max-age=60, stale-if-error=5, stale-while-revalidate=7|Age: 9";
        let freshness = judged(GET, 200, lines).unwrap();
        assert_eq!((freshness.initial_age_s, freshness.stale_if_error_s), (9, 5));
        let late = format!("{lines}|Date: Sun, 06 Nov 1994 08:49:17 GMT");
        assert_eq!(judged(GET, 200, &late).unwrap().initial_age_s, 20);
        let strict = format!("{lines}|Cache-Control: must-revalidate");
        let strict = judged(GET, 200, &strict).unwrap();
        assert_eq!((strict.stale_if_error_s, strict.stale_while_revalidate_s), (0, 0));
        assert!(strict.must_revalidate && !freshness.must_revalidate);
    }
}
