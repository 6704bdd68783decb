//! Requests that get their response from the server itself: health checks, and what has waited too long.

use thruway_http1::response::ResponseConstraints;
use thruway_http1::{Request, RequestFraming};

use crate::clock::monotonic_us;
use crate::connections::Connections;
use crate::request_start;
use crate::response::ResponseWriter;
use crate::slab::ConnectionId;

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
    constraints.is_persistent &= !connections.is_draining;
    if let Some(ticket) = connections.begin_request(id) {
        ResponseWriter::new(connections, ticket).respond_text(constraints, status, text);
    }
}

/// Whether the server takes requests, and why not.
pub(crate) fn health(connections: &Connections) -> (u16, &'static str) {
    if connections.is_draining {
        (503, "the server is stopping")
    } else if connections.slab.len() >= connections.settings.connections_max {
        (503, "as many connections are open as may be")
    } else if has_late(connections) {
        (503, "requests have waited too long")
    } else {
        (200, "the server responds")
    }
}

/// Whether the request that waits first has waited for longer than one may.
pub(crate) fn has_late(connections: &Connections) -> bool {
    let Some(queue_ms) = connections.settings.queue_ms else { return false };
    oldest_ready_us(connections)
        .is_some_and(|ready_us| monotonic_us().saturating_sub(ready_us) > queue_ms * 1000)
}

/// Microseconds until the request that waits first has waited for too long.
pub(crate) fn late_in_us(connections: &Connections) -> Option<u64> {
    let late_us = oldest_ready_us(connections)? + connections.settings.queue_ms? * 1000;
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
    let Some(ready_us) = oldest_ready_us(connections) else { return };
    let age_us = monotonic_us().saturating_sub(ready_us);
    if age_us > WARN_AFTER_US {
        let (count, seconds) = (connections.turns.len(), age_us / 1_000_000);
        let text = format!("{count} wait, the oldest for {seconds} s");
        connections.warn("serve requests in time", std::io::Error::other(text));
    }
}

fn oldest_ready_us(connections: &Connections) -> Option<u64> {
    let (slot, _) = connections.turns.find_oldest(|_| true)?;
    connections
        .in_slot(slot)
        .filter(|waiting| waiting.needs_handler())
        .map(|waiting| waiting.ready_us)
}
