//! Answers a request whose head is complete with a stored response, without a handler.

use thruway_cache::flights::Departure;
use thruway_cache::reuse::Reuse;
use thruway_cache::{Counter, Key, StoredResponse};
use thruway_http1::Request;

use crate::exchange::cached::departure;
use crate::exchange::cached::reply::{Origin, Reply};
use crate::exchange::cached::request::{CacheRequest, key_of};
use crate::exchange::response::ResponseWriter;
use crate::exchange::{counting, own_response};
use crate::store::entry_mut::EntryMut;

/// The response to a request that accepts only stored responses, if none is stored.
const NOT_STORED: &str = "the response is not stored";

/// Responds to a request from the cache; `rest` is the input behind the head. Returns the entry if no stored response
/// answers the request.
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

/// Asks the application for a new response to replace one that is sent stale, unless another request already does so.
fn refresh(entry: &mut EntryMut<'_>, key: &Key, request: &Request<'_>) {
    let Some(cache) = &entry.store.cache else { return };
    let tag = cache.store.flight_tag(key, request.fields());
    let departed = cache.store.depart_to_renew(tag, cache.worker, entry.store.clock.now_ms);
    if let Departure::Lead(flight) = departed {
        departure::refresh(entry, request, flight);
    }
}

/// Sends a stored response as the complete answer to a request.
fn send(
    mut entry: EntryMut<'_>,
    request: &Request<'_>,
    rest: &[u8],
    found: StoredResponse,
    age_s: u32,
) {
    entry.cache_role = None;
    counting::begin(&mut entry, request);
    let (store, ticket, constraints) = own_response::begin(entry, request, rest);
    let origin = Origin::Stored { age_s };
    let reply = Reply::new(store, &found, request.fields(), constraints, origin);
    ResponseWriter::new(store, ticket).send_stored(found, reply);
}

/// Refuses a request that accepts only stored responses.
fn refuse(mut entry: EntryMut<'_>, request: &Request<'_>, rest: &[u8]) {
    entry.cache_role = None;
    counting::begin(&mut entry, request);
    let (store, ticket, constraints) = own_response::begin(entry, request, rest);
    ResponseWriter::new(store, ticket).respond_text(constraints, 504, NOT_STORED);
}
