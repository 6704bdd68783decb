//! The properties of a request that concern the cache.

use thruway_cache::Key;
use thruway_cache::directives::RequestDirectives;
use thruway_cache::policy::RequestFacts;
use thruway_http1::field::members;
use thruway_http1::{KnownField, Request};

use crate::store::entry_mut::EntryMut;

/// The properties of a request that concern the cache.
#[derive(Debug)]
pub(crate) struct CacheRequest {
    pub(crate) facts: RequestFacts,
    pub(crate) directives: RequestDirectives,
    /// Whether a stored response may answer the request.
    pub(crate) is_candidate: bool,
    /// Whether the request is for a complete response, without conditions.
    pub(crate) is_plain: bool,
}

impl CacheRequest {
    pub(crate) fn of(request: &Request<'_>) -> Self {
        let is_get = request.method() == b"GET";
        let mut facts = RequestFacts { is_get, ..RequestFacts::default() };
        let mut directives = RequestDirectives::default();
        let (mut has_control, mut has_pragma) = (false, false);
        let (mut is_plain, mut is_special) = (true, false);
        for (name, value) in request.fields() {
            let is = |wanted: &[u8]| name.eq_ignore_ascii_case(wanted);
            match name.len() {
                5 if is(b"range") => is_plain = false,
                6 if is(b"accept") => {
                    is_special |= members(value).any(|one| one.starts_with(b"text/event-stream"));
                }
                6 if is(b"cookie") => facts.has_cookie = true,
                6 if is(b"pragma") => {
                    has_pragma |= members(value).any(|one| one.eq_ignore_ascii_case(b"no-cache"));
                }
                7 if is(b"upgrade") => is_special = true,
                8 if is(b"if-match") => is_special = true,
                13 if is(b"authorization") => facts.has_authorization = true,
                13 if is(b"if-none-match") => is_plain = false,
                13 if is(b"cache-control") => {
                    has_control = true;
                    directives.add(value);
                }
                17 if is(b"if-modified-since") => is_plain = false,
                19 if is(b"if-unmodified-since") => is_special = true,
                _ => {}
            }
        }
        directives.no_cache |= has_pragma && !has_control;
        facts.no_store = directives.no_store;
        let is_read = is_get || request.is_head();
        let is_candidate =
            is_read && !request.has_body() && !is_special && !facts.has_authorization;
        Self { facts, directives, is_candidate, is_plain }
    }
}

/// Returns the key of a request; `None` without a host.
pub(crate) fn key_of(entry: &EntryMut<'_>, request: &Request<'_>) -> Option<Key> {
    let is_https = is_https(entry, request);
    Some(Key::new(is_https, request.host()?, request.path(), request.query(), request.fields()))
}

/// Whether the client speaks TLS, either with this server or with a trusted proxy.
pub(crate) fn is_https(entry: &EntryMut<'_>, request: &Request<'_>) -> bool {
    let source = entry.store.settings.client_source;
    let says_https = || source.is_https(request) || has_https_before(request);
    entry.speaks_tls() || entry.is_trusted && says_https()
}

/// Whether a proxy reports that the client speaks TLS.
pub(crate) fn has_https_before(request: &Request<'_>) -> bool {
    let proto = request.known(KnownField::ForwardedProto);
    let first = proto.and_then(|proto| members(proto).next());
    first.is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"https"))
}
