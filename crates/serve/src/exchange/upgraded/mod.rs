//! Connections that an application has upgraded: WebSockets, and streams of server-sent events.
//!
//! The engine keeps them: no thread waits for one. A message is a turn of its connection in the queue. While the owner
//! handles an event of a connection, that connection has no other event; it reads one message ahead.
//!
//! Reading order: `entry::socket_state` is the state of each, and this file is a turn. `socket_writer` writes for the
//! owner, `farewell` ends them all when the server stops.

pub(crate) mod farewell;
pub(crate) mod socket_writer;

use thruway_websocket::{self as websocket, CloseCode, Fault, Input, Opcode};

use crate::entry::socket_state::{Protocol, SocketEvent, SocketStage, Upgraded};
use crate::entry::ticket::Ticket;
use crate::entry::{self, Connection, Payload, Received};
use crate::events::slab::ConnectionId;
use crate::exchange::handler::Handler;
use crate::exchange::http2::output;
use crate::output::QUANTUM_BYTES;
use crate::store::{Connections, finish_upgraded};

/// A comment in a stream of events, which keeps proxies from ending it.
const COMMENT: &[u8] = b":\n\n";

/// A turn: it writes, hands an event to the owner, or reads.
pub(crate) fn turn(
    connections: &mut Connections,
    id: ConnectionId,
    inbox: &mut [u8],
    handler: &mut impl Handler,
) {
    if connections.slab.get(id).is_some_and(entry::can_flush) {
        return connections.flush(id);
    }
    if hand_over(connections, id, handler) {
        return;
    }
    if connections.slab.get(id).is_some_and(entry::can_read) {
        read(connections, id, inbox);
        hand_over(connections, id, handler);
    }
}

/// Hands an event to the owner; false if there is none, or the owner is not there.
fn hand_over(connections: &mut Connections, id: ConnectionId, handler: &mut impl Handler) -> bool {
    let Some(connection) = connections.slab.get_mut(id) else { return false };
    let ticket = Ticket { connection: id, request: connection.request };
    let event = entry::upgraded_mut(connection).filter(|_| handler.is_present());
    let Some(event) = event.and_then(Upgraded::take_event) else { return false };
    if matches!(event, SocketEvent::Ended(_)) {
        connections.close(id);
    }
    handler.socket_event(ticket, event);
    true
}

/// Reads what is there, up to the first message.
fn read(connections: &mut Connections, id: ConnectionId, inbox: &mut [u8]) {
    let Some(connection) = connections.slab.get_mut(id) else { return };
    let mut own = std::mem::take(&mut connection.input);
    if connection.seen >= own.len() {
        match connection.receive(inbox) {
            Received::Bytes(length) => own.extend_from_slice(&inbox[..length]),
            Received::Later => return connection.input = own,
            Received::Ended => return hear_end(connections, id),
        }
        note_heard(connection, connections.clock.now_ms);
    }
    let said = decode(connections, id, own);
    answer(connections, id, said);
}

/// The client is there.
fn note_heard(connection: &mut Connection, now_ms: u64) {
    if let Some(upgraded) =
        entry::upgraded_mut(connection).filter(|state| state.stage == SocketStage::Open)
    {
        upgraded.is_pinged = false;
        connection.since_ms = now_ms;
    }
}

/// What a client has said, besides a message.
#[derive(Default)]
struct Said {
    /// Frames that respond to its pings.
    pongs: Vec<u8>,
    end: Option<Result<CloseCode, Fault>>,
}

/// Decodes bytes up to the first message, and keeps the rest.
fn decode(connections: &mut Connections, id: ConnectionId, bytes: Vec<u8>) -> Said {
    let (limits, deflater) = (connections.settings.socket_limits, &mut connections.deflater);
    let mut said = Said::default();
    let Some(connection) = connections.slab.get_mut(id) else { return said };
    connection.seen = 0;
    let Some(upgraded) = entry::upgraded_mut(connection) else { return said };
    let is_open = upgraded.stage == SocketStage::Open;
    let Protocol::WebSocket { decoder, is_compressed } = &mut upgraded.protocol else {
        return said;
    };
    if !is_open && upgraded.stage != SocketStage::Closing {
        return said;
    }
    let mut used = 0;
    let mut is_whole = false;
    while used < bytes.len() && !is_whole {
        let deflater = is_compressed.then(|| &mut **deflater.get_or_insert_default());
        let (taken, input) = match decoder.next(&bytes[used..], &limits, deflater) {
            Ok(next) => next,
            Err(fault) => {
                said.end = Some(Err(fault));
                return said;
            }
        };
        used += taken;
        match input {
            Input::More if taken == 0 => break,
            Input::Message(message) if is_open => {
                upgraded.message = Some(message);
                is_whole = true;
            }
            Input::Ping(bytes) => said.pongs.extend(websocket::frame(Opcode::Pong, &bytes)),
            Input::Close(code) => {
                said.end = Some(Ok(code));
                return said;
            }
            Input::More | Input::Message(_) | Input::Pong => {}
        }
    }
    let seen = if is_whole { 0 } else { bytes.len() - used };
    connection.keep(&bytes[used..], seen);
    said
}

/// Responds to what a client has said.
fn answer(connections: &mut Connections, id: ConnectionId, said: Said) {
    let Said { pongs, end } = said;
    let Some(upgraded) = connections.slab.get_mut(id).and_then(entry::upgraded_mut) else {
        return;
    };
    let is_first = upgraded.stage == SocketStage::Open;
    let (stage, last) = match end {
        None => (upgraded.stage, Vec::new()),
        Some(Ok(code)) if is_first => (SocketStage::Leaving(code), websocket::close(code, "")),
        Some(Ok(code)) => (SocketStage::Leaving(code), Vec::new()),
        Some(Err(fault)) => {
            (SocketStage::Broken(fault.code), websocket::close(fault.code, fault.reason))
        }
    };
    upgraded.stage = stage;
    if !pongs.is_empty() || end.is_some() {
        send(connections, id, &[pongs, last].concat());
    }
}

/// Sends frames, as far as the client takes them now.
pub(crate) fn send(connections: &mut Connections, id: ConnectionId, frames: &[u8]) {
    let now_ms = connections.clock.now_ms;
    let Some(connection) = connections.slab.get_mut(id) else { return };
    let is_open = entry::upgraded(connection).is_some_and(|state| state.stage == SocketStage::Open);
    if !is_open {
        connection.since_ms = now_ms;
    }
    let flushed = connection.deliver(frames, Payload::Empty, frames.len() + QUANTUM_BYTES);
    if connection.carrier.stream().is_some() {
        return output::flush(connections, id);
    }
    connections.after_flush(id, flushed);
}

/// The client sends nothing more.
fn hear_end(connections: &mut Connections, id: ConnectionId) {
    let stage = connections.slab.get(id).and_then(entry::upgraded).map(|state| state.stage);
    let code = match stage {
        Some(SocketStage::Leaving(code) | SocketStage::Broken(code)) => code,
        _ => CloseCode::ABNORMAL,
    };
    finish_upgraded(connections, id, code);
}

/// A deadline has come: a ping is due, or the time for something is over.
pub(crate) fn expire(connections: &mut Connections, id: ConnectionId) {
    let now_ms = connections.clock.now_ms;
    let Some(connection) = connections.slab.get_mut(id) else { return };
    let since_ms = connection.since_ms;
    let Some(upgraded) = entry::upgraded_mut(connection) else { return };
    let is_silent =
        upgraded.is_pinged && since_ms + 2 * connections.settings.socket_ping_ms <= now_ms;
    match upgraded.stage {
        SocketStage::Broken(code) => finish_upgraded(connections, id, code),
        SocketStage::Closing => finish_upgraded(connections, id, CloseCode::ABNORMAL),
        _ if upgraded.farewell.come(now_ms) => connections.settle(id),
        _ if is_silent => finish_upgraded(connections, id, CloseCode::ABNORMAL),
        _ => ping(connections, id),
    }
}

fn ping(connections: &mut Connections, id: ConnectionId) {
    let now_ms = connections.clock.now_ms;
    let Some(connection) = connections.slab.get_mut(id) else { return };
    let Some(upgraded) = entry::upgraded_mut(connection) else { return };
    let bytes = match upgraded.protocol {
        Protocol::WebSocket { .. } => {
            upgraded.is_pinged = true;
            websocket::frame(Opcode::Ping, &[])
        }
        Protocol::Events => {
            connection.since_ms = now_ms;
            COMMENT.to_vec()
        }
    };
    send(connections, id, &bytes);
    connections.set_deadline(id);
}
