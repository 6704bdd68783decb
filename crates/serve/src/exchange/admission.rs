//! Requests that get their response from the server itself: health checks, and what has waited too long.

use thruway_http1::response::ResponseConstraints;
use thruway_http1::{Request, RequestFraming};

use crate::entry::{Connection, Phase};
use crate::events::clock::monotonic_us;
use crate::events::slab::ConnectionId;
use crate::exchange::request_start;
use crate::exchange::response::ResponseWriter;
use crate::queue::standing::Standing;
use crate::queue::waits::Wait;
use crate::store::Connections;

/// Requests that wait for so long are told of in the log.
const WARN_AFTER_US: u64 = 5_000_000;

/// The text of a 503 for what has waited too long.
pub(crate) const LATE: &str = "the request has waited too long";

/// Whether the server itself responds to a request: it is a health check, and has no body.
pub(crate) fn is_health_check(connections: &Connections, request: &Request<'_>) -> bool {
    connections.settings.health_path.as_deref().is_some_and(|path| path == request.path())
        && matches!(request.method(), b"GET" | b"HEAD")
        && matches!(request.framing(), RequestFraming::None | RequestFraming::Length(0))
}

/// Responds to a health check; `rest` is what came behind it.
pub(crate) fn tell_health(
    connections: &mut Connections,
    id: ConnectionId,
    request: &Request<'_>,
    rest: &[u8],
) {
    if let Some(connection) = connections.slab.get_mut(id) {
        connection.keep(rest, 0);
    }
    let (status, text) = health(connections);
    let mut constraints = ResponseConstraints::of(request);
    constraints.is_persistent &= !connections.parts_with(id);
    if let Some(ticket) = connections.begin_request(id) {
        ResponseWriter::new(connections, ticket).respond_text(constraints, status, text);
    }
}

/// Whether the server takes requests, and why not.
pub(crate) fn health(connections: &mut Connections) -> (u16, &'static str) {
    if connections.stage.parts() {
        (503, "the server is stopping")
    } else if connections.count() >= connections.settings.connections_max {
        (503, "as many connections are open as may be")
    } else if has_late(connections) {
        (503, "requests have waited too long")
    } else {
        (200, "the server responds")
    }
}

/// Whether a request has waited here for longer than one may. What a head says of the time before is the word of its
/// client, and is not to end this server's service.
fn has_late(connections: &Connections) -> bool {
    let (Some(queue_ms), Some(waits)) = (connections.settings.queue_ms, &connections.turns.waits)
    else {
        return false;
    };
    let ready_us = monotonic_us().saturating_sub(queue_ms * 1000);
    let mut late = waits.iter().filter(|wait| wait.ready_us < ready_us);
    late.any(|wait| is_waiting(connections, wait).is_some_and(Connection::needs_handler))
}

/// A request whose head is whole is to wait for a handler: its wait began at the proxy before, if that says so.
pub(crate) fn note_wait(connections: &mut Connections, id: ConnectionId, request: &Request<'_>) {
    if connections.turns.waits.is_some() {
        note_age(connections, id, request_start::age_us(request));
    }
}

/// The same of a request whose body is whole.
pub(crate) fn note_wait_of_body(connections: &mut Connections, id: ConnectionId) {
    if connections.turns.waits.is_none() {
        return;
    }
    let Some(connection) = connections.slab.get(id) else { return };
    let Phase::Receiving(upload) = &connection.phase else { return };
    let age_us = request_start::age_us(&upload.head.request(&upload.head_bytes));
    note_age(connections, id, age_us);
}

fn note_age(connections: &mut Connections, id: ConnectionId, age_us: Option<u64>) {
    let Some(age_us) = age_us else { return };
    let Some(connection) = connections.slab.get(id) else { return };
    let Some(waits) = &mut connections.turns.waits else { return };
    let (ready_us, since_us) = (connection.ready_us, monotonic_us().saturating_sub(age_us));
    if since_us < ready_us {
        waits.begin(Wait { since_us, ready_us, slot: id.slot() });
    }
}

/// The slot of the request that has waited longest, if that is longer than one may.
pub(crate) fn find_late(connections: &mut Connections) -> Option<u32> {
    let max_us = connections.settings.queue_ms? * 1000;
    let oldest = oldest(connections)?;
    (monotonic_us().saturating_sub(oldest.since_us) > max_us).then_some(oldest.slot)
}

/// Microseconds until a request has waited for too long.
pub(crate) fn late_in_us(connections: &mut Connections) -> Option<u64> {
    let late_us = connections.settings.queue_ms? * 1000 + oldest(connections)?.since_us;
    Some((late_us + 1).saturating_sub(monotonic_us()))
}

/// Whether `request` has waited for longer than one may, here and at the proxy before.
pub(crate) fn is_late(connections: &Connections, id: ConnectionId, request: &Request<'_>) -> bool {
    let Some(queue_ms) = connections.settings.queue_ms else { return false };
    let Some(connection) = connections.slab.get(id) else { return false };
    let here_us = monotonic_us().saturating_sub(connection.ready_us);
    request_start::age_us(request).unwrap_or(0).max(here_us) > queue_ms * 1000
}

/// Tells in the log of requests that wait for long.
pub(crate) fn warn_of_a_long_queue(connections: &mut Connections) {
    let Some(ready_us) = next_ready_us(connections) else { return };
    let age_us = monotonic_us().saturating_sub(ready_us);
    if age_us > WARN_AFTER_US {
        let (count, seconds) = (connections.turns.len(), age_us / 1_000_000);
        let text = format!("{count} wait, the next one for {seconds} s");
        connections.warn("serve requests in time", std::io::Error::other(text));
    }
}

/// Since when the request with the next turn is ready, if it needs a handler.
fn next_ready_us(connections: &Connections) -> Option<u64> {
    let (slot, _) = connections.turns.find_oldest(|_| true)?;
    let next = connections.in_slot(slot).filter(|connection| connection.needs_handler());
    next.map(|connection| connection.ready_us)
}

/// The request that has waited longest, of all that wait for a handler.
pub(crate) fn oldest(connections: &mut Connections) -> Option<Wait> {
    let mut waits = connections.turns.waits.take()?;
    waits.trim(|wait| is_waiting(connections, wait).is_some());
    let oldest = waits
        .iter()
        .find(|wait| is_waiting(connections, *wait).is_some_and(Connection::needs_handler));
    connections.turns.waits = Some(waits);
    oldest
}

/// The connection that waits, unless the wait has ended.
fn is_waiting(connections: &Connections, wait: Wait) -> Option<&Connection> {
    let connection = connections.in_slot(wait.slot)?;
    let is_parked = matches!(connection.standing, Standing::Parked(_));
    let waits = connection.ready_us == wait.ready_us;
    (waits && (is_parked || connections.turns.contains(wait.slot))).then_some(connection)
}
