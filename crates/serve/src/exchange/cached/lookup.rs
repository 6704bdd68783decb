//! A request whose head is whole gets a stored response, without a handler.

use thruway_cache::directives::RequestDirectives;
use thruway_cache::flights::Departure;
use thruway_cache::policy::RequestFacts;
use thruway_cache::reuse::Reuse;
use thruway_cache::{Counter, Key, StoredResponse};
use thruway_http1::field::members;
use thruway_http1::response::ResponseConstraints;
use thruway_http1::{KnownField, Request, RequestFraming};

use crate::exchange::cached::departure;
use crate::exchange::cached::reply::{Origin, Reply};
use crate::exchange::counting;
use crate::exchange::response::ResponseWriter;
use crate::store::entry_mut::EntryMut;

/// The response to a request that wants nothing but a stored response, where there is none.
const NOT_STORED: &str = "the response is not stored";

/// A request as the cache sees it.
#[derive(Debug)]
pub(crate) struct CacheRequest {
    pub(crate) facts: RequestFacts,
    pub(crate) directives: RequestDirectives,
    /// Whether a stored response may answer it.
    pub(crate) is_candidate: bool,
    /// Whether it asks for a whole response, without conditions.
    pub(crate) is_plain: bool,
}

impl CacheRequest {
    pub(crate) fn of(request: &Request<'_>) -> Self {
        let is_get = request.method() == b"GET";
        let has_body =
            !matches!(request.framing(), RequestFraming::None | RequestFraming::Length(0));
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
        let is_candidate = is_read && !has_body && !is_special && !facts.has_authorization;
        Self { facts, directives, is_candidate, is_plain }
    }
}

/// Responds to a request from the cache; `rest` is what came behind it. Gives the entry back if nothing stored answers
/// the request.
pub(crate) fn respond<'a>(
    mut entry: EntryMut<'a>,
    request: &Request<'_>,
    rest: &[u8],
) -> Option<EntryMut<'a>> {
    let asked = CacheRequest::of(request);
    if !asked.is_candidate {
        return Some(entry);
    }
    let Some(key) = key_of(&entry, request) else { return Some(entry) };
    let found = entry.store.find_stored(&key, request);
    let now_ms = entry.store.clock.now_ms;
    let answer = found.map(|found| {
        let reuse = found.freshness().reuse(asked.directives, found.resident_s(now_ms));
        (found, reuse)
    });
    match answer {
        Some((found, Reuse::Fresh { age_s })) => {
            entry.store.count_cached(Counter::Hits);
            send(entry, request, rest, found, age_s);
            None
        }
        Some((found, Reuse::StaleWhileRevalidating { age_s })) => {
            entry.store.count_cached(Counter::Stale);
            refresh(&mut entry, &key, request);
            send(entry, request, rest, found, age_s);
            None
        }
        other => {
            if let Some((found, _)) = other {
                entry.store.keep_buffer(found);
            }
            if !asked.directives.only_if_cached {
                return Some(entry);
            }
            refuse(entry, request, rest);
            None
        }
    }
}

/// Asks the application for a response that is sent stale, unless another request does so already.
fn refresh(entry: &mut EntryMut<'_>, key: &Key, request: &Request<'_>) {
    let Some(cache) = &entry.store.cache else { return };
    let tag = cache.store.flight_tag(key, request.fields());
    let departed = cache.store.depart_to_renew(tag, cache.worker, entry.store.clock.now_ms);
    if let Departure::Lead(flight) = departed {
        departure::refresh(entry, request, flight);
    }
}

/// Sends a stored response as the whole answer to a request.
fn send(
    mut entry: EntryMut<'_>,
    request: &Request<'_>,
    rest: &[u8],
    found: StoredResponse,
    age_s: u32,
) {
    entry.keep(rest, 0);
    let mut constraints = ResponseConstraints::of(request);
    constraints.is_persistent &= !entry.closes_after_response();
    let ticket = entry.begin_request();
    entry.cache_role = None;
    counting::begin(&mut entry, request);
    let (store, _) = entry.into_parts();
    let origin = Origin::Stored { age_s };
    let reply = Reply::new(store, &found, request.fields(), constraints, origin);
    ResponseWriter::new(store, ticket).send_stored(found, reply);
}

/// Responds to a request that wants nothing but a stored response.
fn refuse(mut entry: EntryMut<'_>, request: &Request<'_>, rest: &[u8]) {
    entry.keep(rest, 0);
    let mut constraints = ResponseConstraints::of(request);
    constraints.is_persistent &= !entry.closes_after_response();
    let ticket = entry.begin_request();
    entry.cache_role = None;
    counting::begin(&mut entry, request);
    let (store, _) = entry.into_parts();
    ResponseWriter::new(store, ticket).respond_text(constraints, 504, NOT_STORED);
}

/// The key of a request; `None` without a host.
pub(crate) fn key_of(entry: &EntryMut<'_>, request: &Request<'_>) -> Option<Key> {
    let is_https = is_https(entry, request);
    Some(Key::new(is_https, request.host()?, request.path(), request.query(), request.fields()))
}

fn is_https(entry: &EntryMut<'_>, request: &Request<'_>) -> bool {
    let source = entry.store.settings.client_source;
    let says_https = || source.is_https(request) || has_https_before(request);
    entry.speaks_tls() || entry.is_trusted && says_https()
}

/// Whether a proxy says that the client speaks TLS.
pub(crate) fn has_https_before(request: &Request<'_>) -> bool {
    let proto = request.known(KnownField::ForwardedProto);
    let first = proto.and_then(|proto| members(proto).next());
    first.is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"https"))
}
