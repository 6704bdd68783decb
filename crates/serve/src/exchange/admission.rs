//! Requests to which the server itself responds: health checks, and requests that have waited too long.

use thruway_http1::Request;

use crate::entry::{Entry, State};
use crate::events::clock::monotonic_us;
use crate::exchange::own_response;
use crate::exchange::request_start;
use crate::exchange::response::ResponseWriter;
use crate::queue::queue_position::QueuePosition;
use crate::queue::waits::Wait;
use crate::store::Store;
use crate::store::entry_mut::EntryMut;

/// The wait after which the log reports waiting requests.
const WARN_AFTER_US: u64 = 5_000_000;

/// The text of a 503 for a request that has waited too long.
pub(crate) const LATE: &str = "the request has waited too long";

/// Whether the server itself responds to a request: the request is a health check and has no body.
pub(crate) fn is_health_check(store: &Store, request: &Request<'_>) -> bool {
    store.settings.health_path.as_deref().is_some_and(|path| path == request.path())
        && matches!(request.method(), b"GET" | b"HEAD")
        && !request.has_body()
}

/// Responds to a health check; `rest` is the input behind the head.
pub(crate) fn respond_health(entry: EntryMut<'_>, request: &Request<'_>, rest: &[u8]) {
    let (status, text) = health(entry.store);
    let (store, ticket, constraints) = own_response::begin(entry, request, rest);
    ResponseWriter::new(store, ticket).respond_text(constraints, status, text);
}

/// Returns 200 if the server takes requests, or else 503, with a text that gives the reason.
pub(crate) fn health(store: &mut Store) -> (u16, &'static str) {
    if store.service.closes_after_response() {
        (503, "the server is stopping")
    } else if store.count() >= store.settings.connections_max {
        (503, "as many connections are open as may be")
    } else if has_late(store) {
        (503, "requests have waited too long")
    } else {
        (200, "the server responds")
    }
}

/// Whether a request has waited in this server for longer than the limit. The wait at a proxy does not count: the
/// client may have invented it, and must not end the server's service.
fn has_late(store: &Store) -> bool {
    let (Some(queue_ms), Some(waits)) = (store.settings.queue_ms, &store.turns.waits) else {
        return false;
    };
    let ready_us = monotonic_us().saturating_sub(queue_ms * 1000);
    let mut late = waits.iter().filter(|wait| wait.ready_us < ready_us);
    late.any(|wait| waiting_entry(store, wait).is_some_and(Entry::needs_handler))
}

/// Records the wait of a request whose head is complete and that needs a handler. If a proxy has recorded the arrival
/// of the request, the wait began at the proxy.
pub(crate) fn note_wait(entry: &mut EntryMut<'_>, request: &Request<'_>) {
    if entry.store.turns.waits.is_some() {
        note_age(entry, request_start::age_us(request));
    }
}

/// Records the wait of a request whose body is complete, as [`note_wait`] does.
pub(crate) fn note_wait_of_body(entry: &mut EntryMut<'_>) {
    if entry.store.turns.waits.is_none() {
        return;
    }
    if let State::Receiving(upload) = &entry.state {
        let age_us = request_start::age_us(&upload.head.request(&upload.head_bytes));
        note_age(entry, age_us);
    }
}

fn note_age(entry: &mut EntryMut<'_>, age_us: Option<u64>) {
    let Some(age_us) = age_us else { return };
    let (ready_us, slot) = (entry.turn.ready_us, entry.id().slot());
    let Some(waits) = &mut entry.store.turns.waits else { return };
    let since_us = monotonic_us().saturating_sub(age_us);
    if since_us < ready_us {
        waits.begin(Wait { since_us, ready_us, slot });
    }
}

/// Returns the slot of the request that has waited longest, if the wait exceeds the limit.
pub(crate) fn find_late(store: &mut Store) -> Option<u32> {
    let max_us = store.settings.queue_ms? * 1000;
    let oldest = oldest(store)?;
    (monotonic_us().saturating_sub(oldest.since_us) > max_us).then_some(oldest.slot)
}

/// Returns the number of microseconds until a request exceeds the limit.
pub(crate) fn late_in_us(store: &mut Store) -> Option<u64> {
    let late_us = store.settings.queue_ms? * 1000 + oldest(store)?.since_us;
    Some((late_us + 1).saturating_sub(monotonic_us()))
}

/// Whether the wait of `request` in this server or since its arrival at the proxy exceeds the limit.
pub(crate) fn is_late(entry: &EntryMut<'_>, request: &Request<'_>) -> bool {
    let Some(queue_ms) = entry.store.settings.queue_ms else { return false };
    let here_us = monotonic_us().saturating_sub(entry.turn.ready_us);
    request_start::age_us(request).unwrap_or(0).max(here_us) > queue_ms * 1000
}

/// Warns in the log of requests that wait for long.
pub(crate) fn warn_of_a_long_queue(store: &mut Store) {
    let Some(ready_us) = next_ready_us(store) else { return };
    let age_us = monotonic_us().saturating_sub(ready_us);
    if age_us > WARN_AFTER_US {
        let (count, seconds) = (store.turns.len(), age_us / 1_000_000);
        let text = format!("{count} wait, the next one for {seconds} s");
        store.warn("serve requests in time", std::io::Error::other(text));
    }
}

/// Returns the time since which the request with the next turn has waited, if the request needs a handler.
fn next_ready_us(store: &Store) -> Option<u64> {
    let (slot, _) = store.turns.find_oldest(|_| true)?;
    let next = store.in_slot(slot).filter(|connection| connection.needs_handler());
    next.map(|connection| connection.turn.ready_us)
}

/// Returns the longest wait of all requests that wait for a handler.
pub(crate) fn oldest(store: &mut Store) -> Option<Wait> {
    let mut waits = store.turns.waits.take()?;
    waits.trim(|wait| waiting_entry(store, wait).is_some());
    let oldest =
        waits.iter().find(|wait| waiting_entry(store, *wait).is_some_and(Entry::needs_handler));
    store.turns.waits = Some(waits);
    oldest
}

/// Returns the waiting connection, unless the wait has ended.
fn waiting_entry(store: &Store, wait: Wait) -> Option<&Entry> {
    let connection = store.in_slot(wait.slot)?;
    let is_parked = matches!(connection.turn.position, QueuePosition::Parked(_));
    let waits = connection.turn.ready_us == wait.ready_us;
    (waits && (is_parked || store.turns.contains(wait.slot))).then_some(connection)
}
