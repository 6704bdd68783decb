//! Connections that an application has upgraded: WebSockets, and streams of server-sent events.
//!
//! The engine keeps these connections, and no thread waits for them. Each message is a turn of its connection in the
//! queue. While the owner handles an event of a connection, the connection has no other event; it reads one message
//! ahead.
//!
//! Reading order: `entry::socket_state` holds the state of each connection, and this file is a turn. `socket_writer`
//! writes for the owner, and `planned_close` ends all connections when the server stops.

pub(crate) mod planned_close;
pub(crate) mod socket_writer;

use thruway_websocket::{self as websocket, CloseCode, Fault, Input, Opcode};

use crate::entry::socket_state::{Protocol, SocketEvent, SocketState, UpgradedSocket};
use crate::entry::ticket::Ticket;
use crate::entry::{self, Entry, Payload, ReadOutcome};
use crate::exchange::handler::Handler;
use crate::exchange::http2::output;
use crate::output::QUANTUM_BYTES;
use crate::store::entry_mut::EntryMut;

/// A comment in a stream of events, which keeps proxies from ending the stream.
const COMMENT: &[u8] = b":\n\n";

/// Performs a turn: writes, hands an event to the owner, or reads.
pub(crate) fn turn(socket: EntryMut<'_>, inbox: &mut [u8], handler: &mut impl Handler) {
    if entry::can_flush(&socket) {
        socket.flush();
        return;
    }
    let Err(socket) = hand_over(socket, handler) else { return };
    if !entry::can_read(&socket) {
        return;
    }
    if let Some(socket) = read(socket, inbox) {
        // If the owner cannot take the event now, the event waits.
        let _ = hand_over(socket, handler);
    }
}

/// Hands an event to the owner. Returns the socket if there is no event, or if the owner is not present.
fn hand_over<'a>(mut socket: EntryMut<'a>, handler: &mut impl Handler) -> Result<(), EntryMut<'a>> {
    let ticket = Ticket { connection: socket.id(), request: socket.request };
    let upgraded = entry::upgraded_mut(&mut socket).filter(|_| handler.is_present());
    let Some(event) = upgraded.and_then(UpgradedSocket::take_event) else { return Err(socket) };
    if matches!(event, SocketEvent::Ended(_)) {
        socket.close();
    }
    handler.socket_event(ticket, event);
    Ok(())
}

/// Reads the available input, up to the first message.
fn read<'a>(mut guard: EntryMut<'a>, inbox: &mut [u8]) -> Option<EntryMut<'a>> {
    let now_ms = guard.store.clock.now_ms;
    let socket = &mut *guard;
    let mut own = std::mem::take(&mut socket.input.bytes);
    if socket.input.searched >= own.len() {
        match socket.receive(inbox) {
            ReadOutcome::Bytes(length) => own.extend_from_slice(&inbox[..length]),
            ReadOutcome::Later => {
                socket.input.bytes = own;
                return Some(guard);
            }
            ReadOutcome::Ended => {
                hear_end(guard.reborrow());
                return Some(guard);
            }
        }
        note_heard(socket, now_ms);
    }
    let said = decode(&mut guard, own);
    answer(guard, said)
}

/// Records that the client has sent something.
fn note_heard(socket: &mut Entry, now_ms: u64) {
    let upgraded = entry::upgraded_mut(socket).filter(|state| state.state == SocketState::Open);
    if let Some(upgraded) = upgraded {
        upgraded.is_pinged = false;
        socket.since_ms = now_ms;
    }
}

/// Control frames that a client has sent.
#[derive(Default)]
struct ClientFrames {
    /// The responses to the client's pings.
    pongs: Vec<u8>,
    end: Option<Result<CloseCode, Fault>>,
}

/// Decodes bytes up to the first message, and keeps the rest.
fn decode(guard: &mut EntryMut<'_>, bytes: Vec<u8>) -> ClientFrames {
    let id = guard.id();
    let store = &mut *guard.store;
    let (limits, deflater) = (store.settings.socket_limits, &mut store.deflater);
    let mut said = ClientFrames::default();
    let socket = &mut store.slab[id];
    socket.input.searched = 0;
    let Some(upgraded) = entry::upgraded_mut(socket) else { return said };
    let is_open = upgraded.state == SocketState::Open;
    let Protocol::WebSocket { decoder, is_compressed } = &mut upgraded.protocol else {
        return said;
    };
    if !is_open && upgraded.state != SocketState::Closing {
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
    socket.keep(&bytes[used..], seen);
    said
}

/// Responds to the client's control frames.
fn answer(mut socket: EntryMut<'_>, said: ClientFrames) -> Option<EntryMut<'_>> {
    let ClientFrames { pongs, end } = said;
    let Some(upgraded) = entry::upgraded_mut(&mut socket) else { return Some(socket) };
    let is_first = upgraded.state == SocketState::Open;
    let (stage, last) = match end {
        None => (upgraded.state, Vec::new()),
        Some(Ok(code)) if is_first => (SocketState::Flushing(code), websocket::close(code, "")),
        Some(Ok(code)) => (SocketState::Flushing(code), Vec::new()),
        Some(Err(fault)) => {
            (SocketState::Broken(fault.code), websocket::close(fault.code, fault.reason))
        }
    };
    upgraded.state = stage;
    if pongs.is_empty() && end.is_none() {
        return Some(socket);
    }
    send(socket, &[pongs, last].concat())
}

/// Sends frames, as far as the client takes them now.
pub(crate) fn send<'a>(mut guard: EntryMut<'a>, frames: &[u8]) -> Option<EntryMut<'a>> {
    let now_ms = guard.store.clock.now_ms;
    let socket = &mut *guard;
    let is_open = entry::upgraded(socket).is_some_and(|state| state.state == SocketState::Open);
    if !is_open {
        socket.since_ms = now_ms;
    }
    let flushed = socket.deliver(frames, Payload::Empty, frames.len() + QUANTUM_BYTES);
    if socket.carrier.stream().is_some() {
        output::flush(guard.reborrow());
        return guard.if_open();
    }
    guard.after_flush(flushed)
}

/// Handles a client that sends nothing more.
fn hear_end(mut socket: EntryMut<'_>) {
    if has_ended_its_half(&mut socket) {
        return;
    }
    let code = match entry::upgraded(&socket).map(|state| state.state) {
        Some(SocketState::Flushing(code) | SocketState::Broken(code)) => code,
        _ => CloseCode::ABNORMAL,
    };
    socket.finish_upgraded(code);
}

/// Whether only the request has ended: over HTTP/2, a client of server-sent events closes its half of the stream after
/// the request, and the events continue.
fn has_ended_its_half(socket: &mut EntryMut<'_>) -> bool {
    let is_events = |state: &UpgradedSocket| matches!(state.protocol, Protocol::Events);
    entry::upgraded(socket).is_some_and(is_events)
        && socket.carrier.stream_mut().is_some_and(|link| !link.stream.is_gone())
}

/// Handles an expired deadline: a planned close or a ping is due, or the client was silent for too long.
pub(crate) fn expire(mut guard: EntryMut<'_>) {
    let (now_ms, ping_ms) = (guard.store.clock.now_ms, guard.store.settings.socket_ping_ms);
    let socket = &mut *guard;
    let since_ms = socket.since_ms;
    let Some(upgraded) = entry::upgraded_mut(socket) else { return };
    let is_silent = upgraded.is_pinged && since_ms + 2 * ping_ms <= now_ms;
    match upgraded.state {
        SocketState::Broken(code) => guard.finish_upgraded(code),
        SocketState::Closing => guard.finish_upgraded(CloseCode::ABNORMAL),
        _ if upgraded.planned_close.come_due(now_ms) => guard.settle(),
        _ if is_silent => guard.finish_upgraded(CloseCode::ABNORMAL),
        _ => ping(guard),
    }
}

fn ping(mut guard: EntryMut<'_>) {
    let now_ms = guard.store.clock.now_ms;
    let socket = &mut *guard;
    let Some(upgraded) = entry::upgraded_mut(socket) else { return };
    let bytes = match upgraded.protocol {
        Protocol::WebSocket { .. } => {
            upgraded.is_pinged = true;
            websocket::frame(Opcode::Ping, &[])
        }
        Protocol::Events => {
            socket.since_ms = now_ms;
            COMMENT.to_vec()
        }
    };
    if let Some(mut socket) = send(guard, &bytes) {
        socket.set_deadline();
    }
}
