//! How connections end before their clients end them: time that is over, broken requests, drains.

use thruway_http1::ParseError;

use crate::entry::{Connection, Phase, Received};
use crate::events::slab::ConnectionId;
use crate::exchange::counting;
use crate::exchange::http2::output;
use crate::exchange::response::ResponseWriter;
use crate::exchange::upgraded;
use crate::store::Connections;
use crate::store::stage::Stage;

/// Reads the clock, and ends what has taken too long.
pub(crate) fn tick(connections: &mut Connections) {
    connections.clock.update();
    let now_ms = connections.clock.now_ms;
    connections.activity.advance(now_ms);
    let due = connections.deadlines.take_due(now_ms);
    for slot in &due {
        if let Some(id) = connections.slab.id_at(*slot) {
            expire(connections, id);
        }
    }
    connections.deadlines.keep(due);
}

/// A connection's deadline has come.
fn expire(connections: &mut Connections, id: ConnectionId) {
    let Some(connection) = connections.slab.get(id) else { return };
    if connection.output.is_some() {
        return check_pace(connections, id);
    }
    if connection.has_work() {
        // It waits for its turn, not for the client; the turn sets the next deadline.
        return;
    }
    match connection.phase {
        Phase::Waiting if !connection.input.is_empty() => {
            hang_up_with(connections, id, 408, "the head took too long");
        }
        Phase::Receiving(_) => hang_up_with(connections, id, 408, "the body took too long"),
        // The deadline of what it did before.
        Phase::Handling if connections.settings.timeouts.request_ms.is_none() => {}
        Phase::Handling => hang_up_with(connections, id, 503, "the response took too long"),
        Phase::Multiplexing if is_in_head(connection) => {
            output::give_up(connections, id, "a head takes too long");
        }
        Phase::Multiplexing => output::close(connections, id),
        Phase::Upgraded(_) => upgraded::expire(connections, id),
        _ => end(connections, id),
    }
}

/// Whether a connection speaks HTTP/2, and a head comes in.
fn is_in_head(connection: &Connection) -> bool {
    let multiplexer = connection.multiplexer.as_ref();
    multiplexer.is_some_and(|multiplexer| multiplexer.head_since_ms.is_some())
}

/// Closes a connection between two requests.
fn end(connections: &mut Connections, id: ConnectionId) {
    if let Some(connection) = connections.slab.get_mut(id) {
        connection.say_end();
    }
    connections.close(id);
}

/// Cuts off a client that takes too little of its response.
fn check_pace(connections: &mut Connections, id: ConnectionId) {
    let now_ms = connections.clock.now_ms;
    let by_all = output::taken_bytes(connections, id);
    let Some(connection) = connections.slab.get_mut(id) else { return };
    let taken = by_all.unwrap_or_else(|| connection.taken_bytes());
    if connections.deadlines.is_fast_enough(connection, now_ms, taken) {
        connections.set_deadline(id);
    } else if let Some(parent) = output::parent_of(connections, id) {
        output::give_up(connections, parent, "it takes too little of a response");
    } else {
        connections.reset(id);
    }
}

/// Responds to a request that broke a rule, and hangs up: where it ends is in doubt.
pub(crate) fn refuse(connections: &mut Connections, id: ConnectionId, error: ParseError) {
    hang_up_with(connections, id, error.status(), error.text());
}

/// Ends what a connection is in the middle of by a response, and hangs up.
pub(crate) fn hang_up_with(
    connections: &mut Connections,
    id: ConnectionId,
    status: u16,
    text: &str,
) {
    counting::refuse(connections, id, status);
    let Some(ticket) = connections.begin_request(id) else { return };
    ResponseWriter::new(connections, ticket).respond_broken(status, text);
}

/// The disk is full, or there is no folder for files without names.
pub(crate) fn give_up_body(connections: &mut Connections, id: ConnectionId, error: std::io::Error) {
    connections.warn("keep a request's body", error);
    hang_up_with(connections, id, 507, "the body cannot be kept");
}

/// Reads and throws away. Closes when the client has closed, or goes on for too long.
pub(crate) fn drain_input(connections: &mut Connections, id: ConnectionId, inbox: &mut [u8]) {
    let Some(connection) = connections.slab.get_mut(id) else { return };
    let received = connection.receive(inbox);
    let Phase::Lingering { bytes_left } = &mut connection.phase else { return };
    match received {
        Received::Later => {}
        Received::Bytes(length) if (length as u64) < u64::from(*bytes_left) => {
            *bytes_left -= u32::try_from(length).unwrap_or(*bytes_left);
        }
        Received::Bytes(_) | Received::Ended => {
            connections.close(id);
        }
    }
}

/// Begins a drain: connections without a request yet get less time for one.
pub(crate) fn begin_drain(connections: &mut Connections) {
    connections.stage = Stage::Draining;
    connections.deadlines.drain();
    let ids: Vec<_> = connections.slab.ids().collect();
    for id in ids {
        if connections.slab.get(id).is_some_and(|connection| connection.is_fresh) {
            connections.set_deadline(id);
        }
    }
}

/// Closes connections between two requests, if no other process goes on with them. A fresh one has a moment for its
/// first request.
pub(crate) fn close_idle(connections: &mut Connections) {
    output::leave_all(connections);
    let is_idle = |id: &ConnectionId| {
        let connection = connections.slab.get(*id);
        connection.is_some_and(|connection| {
            let goes_on = connections.stage.passes_on() && !connection.is_bound();
            connection.is_idle() && !connection.is_readable && !connection.is_fresh && !goes_on
        })
    };
    let idle: Vec<_> = connections.slab.ids().filter(is_idle).collect();
    for id in idle {
        end(connections, id);
    }
}

/// Ends all connections at the end of a drain. A request without a response yet gets 503.
pub(crate) fn give_up(connections: &mut Connections, inbox: &mut [u8]) {
    let mut ids: Vec<_> = connections.slab.ids().collect();
    // Streams go before their connections.
    let is_parent = |id: &ConnectionId| {
        connections.slab.get(*id).is_some_and(|connection| connection.multiplexer.is_some())
    };
    ids.sort_by_key(is_parent);
    for id in ids {
        give_up_one(connections, id, inbox);
    }
}

fn give_up_one(connections: &mut Connections, id: ConnectionId, inbox: &mut [u8]) {
    let Some(connection) = connections.slab.get_mut(id) else { return };
    let has_asked = match connection.phase {
        Phase::Waiting => !connection.is_idle() || connection.has_bytes(),
        Phase::Receiving(_) | Phase::Handling => true,
        Phase::Multiplexing => return output::close(connections, id),
        Phase::Handshaking
        | Phase::Streaming(_)
        | Phase::Responding
        | Phase::Lingering { .. }
        | Phase::Upgraded(_) => false,
    };
    if has_asked && connection.output.is_none() {
        // Unread bytes would take the response back from the client.
        connection.is_readable = true;
        hang_up_with(connections, id, 503, "the server is stopping");
        let lingers = |connection: &Connection| {
            connection.is_readable && matches!(connection.phase, Phase::Lingering { .. })
        };
        while connections.slab.get(id).is_some_and(lingers) {
            drain_input(connections, id, inbox);
        }
    }
    connections.close(id);
}
