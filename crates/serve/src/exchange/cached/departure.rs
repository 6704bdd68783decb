//! Prepares a request for its handler, if responses are cached: the request begins a flight, waits for the response to
//! another request's flight, or validates a stored response.

use thruway_cache::conditions::Validators;
use thruway_cache::directives::RequestDirectives;
use thruway_cache::flights::{Departure, Flight};
use thruway_cache::record::push_line;
use thruway_cache::reuse::Reuse;
use thruway_cache::{Counter, StoredResponse};
use thruway_http1::response::ResponseConstraints;
use thruway_http1::{BodyDecoder, Head, Limits, Request, RequestFraming, Version};

use crate::entry::State;
use crate::entry::cache_role::{CacheRole, Fill, Stale};
use crate::entry::upload::{Spool, Upload};
use crate::exchange::admission;
use crate::exchange::cached::request::{CacheRequest, key_of};
use crate::store::Store;
use crate::store::cache::WaitingRequest;
use crate::store::entry_mut::EntryMut;

/// The maximum time that a request waits for another request's response, as long as with nginx's lock. Then the request
/// goes to the application.
const WAIT_MS_MAX: u64 = 5_000;

/// The time between two checks for the response to another worker's request.
pub(crate) const LOOK_MS: u64 = 2;

/// The fields of the client's request that are removed from a validation request. The conditions come from the stored
/// response. The client's own head decides whether the connection stays open.
const REPLACED: [&[u8]; 5] =
    [b"if-none-match", b"if-modified-since", b"if-range", b"range", b"connection"];

/// Sets the role of a request that goes to the handler now.
///
/// # Errors
/// The tag with which the request must [`wait`] for another request's response.
#[inline]
pub(crate) fn departs(entry: &mut EntryMut<'_>, request: &Request<'_>) -> Result<(), u64> {
    // Without a cache, no request has a role.
    if entry.store.cache.is_none() { Ok(()) } else { departs_with_cache(entry, request) }
}

fn departs_with_cache(entry: &mut EntryMut<'_>, request: &Request<'_>) -> Result<(), u64> {
    let reserved = match entry.cache_role.take() {
        Some(CacheRole::Reserved(flight)) => Some(*flight),
        _ => None,
    };
    if admission::is_late(entry, request) {
        return Ok(());
    }
    let asked = CacheRequest::of(request);
    let Some(key) = key_of(entry, request) else { return Ok(()) };
    if !asked.is_candidate {
        let is_safe = matches!(request.method(), b"GET" | b"HEAD" | b"OPTIONS");
        entry.cache_role = (!is_safe).then_some(CacheRole::Change(Box::new(key)));
        return Ok(());
    }
    if !asked.facts.is_get {
        entry.store.count_cached(Counter::Misses);
        return Ok(());
    }
    let now_ms = entry.store.clock.now_ms;
    let found = entry.store.find_stored(&key, request);
    let must_wait = std::mem::take(&mut entry.has_waited);
    let Some(cache) = &entry.store.cache else { return Ok(()) };
    let tag = cache.store.flight_tag(&key, request.fields());
    // A request that demands a response newer than the stored one waits for no other request.
    let is_alone = !asked.is_plain || must_wait || asked.directives.no_cache;
    let departure = match reserved {
        Some(flight) => Departure::Lead(flight),
        None if is_alone => Departure::Alone,
        None => cache.store.depart(tag, cache.worker, now_ms),
    };
    let flight = match departure {
        Departure::Wait => {
            if let Some(found) = found {
                entry.store.keep_buffer(found);
            }
            return Err(tag);
        }
        Departure::Lead(flight) => Some(flight),
        Departure::Alone => None,
    };
    let moment = cache.store.moment();
    cache.store.count(Counter::Misses);
    let forwarded_for = match &found {
        _ if asked.directives.no_cache => "request",
        Some(_) => "stale",
        None => "uri-miss",
    };
    let stale = found.and_then(|response| stale(response, asked.directives, now_ms));
    let mut constraints = ResponseConstraints::of(request);
    constraints.is_persistent &= !entry.closes_after_response();
    entry.cache_role = Some(CacheRole::Fill(Box::new(Fill {
        key,
        facts: asked.facts,
        lines: request.field_lines().to_vec(),
        forwarded_for,
        constraints,
        moment,
        tag,
        is_plain: asked.is_plain,
        flight,
        stale,
        gathered: None,
    })));
    Ok(())
}

/// Returns the stored response that a request validates, or may use after an error.
fn stale(response: StoredResponse, directives: RequestDirectives, now_ms: u64) -> Option<Stale> {
    let freshness = response.freshness();
    let stale_if_error = match freshness.reuse(directives, response.resident_s(now_ms)) {
        Reuse::Revalidate { stale_if_error, .. } => stale_if_error,
        Reuse::Fresh { .. } | Reuse::StaleWhileRevalidating { .. } => {
            freshness.stale_if_error_s > 0
        }
    };
    let validators = response.validators();
    let can_validate = validators.etag.is_some() || validators.last_modified.is_some();
    (can_validate || stale_if_error).then_some(Stale { response, stale_if_error })
}

/// Lets a request wait for another request's response. The request leaves all queues, and its client's other requests
/// go first.
pub(crate) fn wait(entry: EntryMut<'_>, tag: u64) {
    let (store, id) = entry.into_parts();
    store.withdraw(id.slot());
    let entry = &mut store.slab[id];
    let upload = match std::mem::replace(&mut entry.state, State::Waiting) {
        State::Receiving(upload) => Some(upload),
        _ => None,
    };
    entry.state = State::AwaitingOther(upload);
    let until_ms = store.clock.now_ms + WAIT_MS_MAX;
    if let Some(cache) = &mut store.cache {
        cache.store.count(Counter::Collapsed);
        cache.waiting.push(WaitingRequest { id, tag, until_ms });
    }
}

/// Resumes requests whose awaited response has arrived or will not arrive.
#[inline]
pub(crate) fn wake(store: &mut Store) {
    if store.cache.as_ref().is_some_and(|cache| !cache.waiting.is_empty()) {
        wake_due(store);
    }
}

fn wake_due(store: &mut Store) {
    let Some(cache) = &mut store.cache else { return };
    let now_ms = store.clock.now_ms;
    let shared = std::sync::Arc::clone(&cache.store);
    let is_due = |waiting: &mut WaitingRequest| {
        now_ms >= waiting.until_ms || !shared.is_flying(waiting.tag, now_ms)
    };
    let due: Vec<_> = cache.waiting.extract_if(.., is_due).collect();
    for waiting in due {
        let Some(mut entry) = store.find(waiting.id) else { continue };
        let State::AwaitingOther(upload) = &mut entry.state else { continue };
        let upload = upload.take();
        entry.state = upload.map_or(State::Waiting, State::Receiving);
        entry.has_waited = now_ms >= waiting.until_ms;
        entry.enqueue();
    }
}

/// Returns the number of milliseconds until the next call of [`wake`] is due, if requests wait.
pub(crate) fn look_ms(store: &Store) -> Option<u64> {
    let cache = store.cache.as_ref()?;
    (!cache.waiting.is_empty()).then_some(LOOK_MS)
}

/// Asks the application for a new response to `request` in the background, while clients may use the stale response.
pub(crate) fn refresh(entry: &mut EntryMut<'_>, request: &Request<'_>, flight: Flight) {
    let Some((head, head_bytes)) = rewritten(b"GET", request, Validators::default()) else {
        return;
    };
    let Ok(decoder) = BodyDecoder::new(RequestFraming::None, &entry.store.settings.limits) else {
        unreachable!("a request without a body was refused");
    };
    let upload = Upload { head, head_bytes, decoder, spool: Spool::Discard, is_whole: true };
    let origin = entry.id();
    entry.store.open_background(origin, upload, CacheRole::Reserved(Box::new(flight)));
}

/// Returns the head of a request that validates the stored response; `None` if there is nothing to validate.
#[inline]
pub(crate) fn validating(entry: &EntryMut<'_>, request: &Request<'_>) -> Option<(Head, Vec<u8>)> {
    let Some(CacheRole::Fill(fill)) = &entry.cache_role else { return None };
    validating_of(fill, request)
}

/// Returns the request with the validators of the stored response that `fill` is going to replace.
fn validating_of(fill: &Fill, request: &Request<'_>) -> Option<(Head, Vec<u8>)> {
    let validators = fill.stale.as_ref()?.response.validators();
    let (mut head, bytes) = rewritten(request.method(), request, validators)?;
    if request.version() == Version::Http2 {
        head.set_http2();
    }
    Some((head, bytes))
}

/// Returns the head of a request with the given conditions in place of its own.
fn rewritten(
    method: &[u8],
    request: &Request<'_>,
    validators: Validators<'_>,
) -> Option<(Head, Vec<u8>)> {
    let mut bytes = Vec::with_capacity(request.field_lines().len() + 256);
    let version: &[u8] = match request.version() {
        Version::Http10 => b" HTTP/1.0\r\n",
        Version::Http11 | Version::Http2 => b" HTTP/1.1\r\n",
    };
    for part in [method, b" ", request.target(), version] {
        bytes.extend_from_slice(part);
    }
    let is_replaced = |name: &[u8]| REPLACED.iter().any(|own| own.eq_ignore_ascii_case(name));
    for (name, value) in request.fields().filter(|(name, _)| !is_replaced(name)) {
        push_line(&mut bytes, name, value);
    }
    // No further request follows: a background request has no connection at all.
    push_line(&mut bytes, b"Connection", b"close");
    let own = [
        (&b"If-None-Match"[..], validators.etag),
        (b"If-Modified-Since", validators.last_modified),
    ];
    for (name, value) in own {
        if let Some(value) = value {
            push_line(&mut bytes, name, value);
        }
    }
    bytes.extend_from_slice(b"\r\n");
    let limits = Limits {
        request_line_bytes_max: bytes.len(),
        head_bytes_max: bytes.len(),
        fields_max: Limits::FIELDS_MAX,
        ..Limits::default()
    };
    let mut head = Head::new();
    (head.parse(&bytes, 0, &limits) == Ok(true)).then_some((head, bytes))
}
