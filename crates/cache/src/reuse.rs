//! Decides whether a stored response answers a request (RFC 9111, section 4).

use crate::directives::RequestDirectives;
use crate::policy::Freshness;

/// The decision about a stored response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reuse {
    /// The response answers the request.
    Fresh {
        /// The age of the response in seconds.
        age_s: u32,
    },
    /// The response answers the request, and one request should revalidate it in the meantime.
    StaleWhileRevalidating {
        /// The age of the response in seconds.
        age_s: u32,
    },
    /// The response answers the request only after validation, or after an error if
    /// `stale_if_error` is set.
    Revalidate {
        /// The age of the response in seconds.
        age_s: u32,
        /// Whether the response may be used if the application fails.
        stale_if_error: bool,
    },
}

impl Freshness {
    /// Returns the age of a response that was stored `resident_s` seconds ago.
    #[must_use]
    pub fn age_s(&self, resident_s: u64) -> u32 {
        let resident_s = u32::try_from(resident_s).unwrap_or(u32::MAX);
        self.initial_age_s.saturating_add(resident_s)
    }

    /// Decides about a response that was stored `resident_s` seconds ago.
    #[must_use]
    pub fn reuse(&self, request: RequestDirectives, resident_s: u64) -> Reuse {
        let age_s = self.age_s(resident_s);
        let stale_s = age_s.saturating_sub(self.lifetime_s);
        let is_fresh = age_s < self.lifetime_s;
        let is_young = request.max_age.is_none_or(|most| age_s <= most)
            && self.lifetime_s.saturating_sub(age_s) >= request.min_fresh;
        let is_wanted = !request.no_cache && !self.no_cache;
        if is_wanted && is_young && is_fresh {
            return Reuse::Fresh { age_s };
        }
        let takes_stale =
            request.max_age.is_none_or(|most| age_s <= most) && request.min_fresh == 0;
        if is_wanted && takes_stale && !is_fresh {
            if stale_s < self.stale_while_revalidate_s {
                return Reuse::StaleWhileRevalidating { age_s };
            }
            if request.max_stale > 0 && stale_s <= request.max_stale && !self.must_revalidate {
                return Reuse::Fresh { age_s };
            }
        }
        let stale_if_error = !self.no_cache && (is_fresh || stale_s < self.stale_if_error_s);
        Reuse::Revalidate { age_s, stale_if_error: stale_if_error && self.stale_if_error_s > 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lifetime_s: u32) -> Freshness {
        Freshness { lifetime_s, ..Freshness::default() }
    }

    fn request(text: &str) -> RequestDirectives {
        let mut directives = RequestDirectives::default();
        directives.add(text.as_bytes());
        directives
    }

    #[test]
    fn a_response_is_fresh_until_its_age_reaches_its_lifetime() {
        let plain = request("");
        assert_eq!(of(10).reuse(plain, 9), Reuse::Fresh { age_s: 9 });
        let stale = Reuse::Revalidate { age_s: 10, stale_if_error: false };
        assert_eq!(of(10).reuse(plain, 10), stale);
        let aged = Freshness { initial_age_s: 5, ..of(10) };
        assert_eq!(aged.reuse(plain, 4), Reuse::Fresh { age_s: 9 });
        assert_eq!(aged.reuse(plain, 5), stale);
        let checked = Freshness { no_cache: true, ..of(10) };
        assert!(matches!(checked.reuse(plain, 1), Reuse::Revalidate { .. }));
    }

    #[test]
    fn a_client_may_ask_for_younger_or_older_responses() {
        for (text, resident_s, is_hit) in [
            ("no-cache", 1, false),
            ("max-age=0", 0, true),
            ("max-age=0", 1, false),
            ("max-age=5", 5, true),
            ("max-age=5", 6, false),
            ("min-fresh=5", 5, true),
            ("min-fresh=5", 6, false),
            ("max-stale", 500, true),
            ("max-stale=5", 15, true),
            ("max-stale=5", 16, false),
            ("max-stale=5, max-age=12", 13, false),
        ] {
            let got = of(10).reuse(request(text), resident_s);
            assert_eq!(matches!(got, Reuse::Fresh { .. }), is_hit, "{text} after {resident_s} s");
        }
        let strict = Freshness { must_revalidate: true, ..of(10) };
        assert!(matches!(strict.reuse(request("max-stale"), 11), Reuse::Revalidate { .. }));
    }

    #[test]
    fn stale_use_ends_with_its_time() {
        let lent = Freshness { stale_while_revalidate_s: 3, stale_if_error_s: 5, ..of(10) };
        let plain = request("");
        assert_eq!(lent.reuse(plain, 12), Reuse::StaleWhileRevalidating { age_s: 12 });
        assert_eq!(lent.reuse(plain, 13), Reuse::Revalidate { age_s: 13, stale_if_error: true });
        assert_eq!(lent.reuse(plain, 15), Reuse::Revalidate { age_s: 15, stale_if_error: false });
        assert!(matches!(lent.reuse(request("max-age=11"), 12), Reuse::Revalidate { .. }));
        assert!(matches!(lent.reuse(request("no-cache"), 12), Reuse::Revalidate { .. }));
    }
}
