//! Connections that an application has upgraded: WebSockets, and streams of server-sent events.
//!
//! The engine keeps them: no thread waits for one. A message is a turn of its connection in the queue. While the owner
//! handles an event of a connection, that connection has no other event; it reads one message ahead. `farewell` ends
//! them when the server stops.

mod farewell;
mod writer;

use thruway_websocket::{self as websocket, CloseCode, Decoder, Fault, Input, Message, Opcode};

use crate::connection::{Connection, Payload, Phase, Received};
use crate::connections::Connections;
use crate::exchange::Handler;
use crate::output::{Flushed, QUANTUM_BYTES};
use crate::slab::ConnectionId;
use crate::ticket::Ticket;

use farewell::Farewell;
pub(crate) use farewell::say_farewell;
pub use writer::SocketWriter;

/// While more waits for a client, nothing is read of it: each ping makes a pong.
const READ_BACKLOG_BYTES_MAX: u64 = 64 << 10;

/// How long a client may take to end a connection that the server has closed.
const CLOSE_MS: u64 = 2_000;

/// A comment in a stream of events, which keeps proxies from ending it.
const COMMENT: &[u8] = b":\n\n";

/// What an upgraded connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpgradeTo {
    /// WebSocket (RFC 6455).
    WebSocket {
        /// Whether permessage-deflate is agreed on, without contexts.
        is_compressed: bool,
    },
    /// Server-sent events: the client sends nothing.
    Events,
}

/// What has happened on an upgraded connection.
#[derive(Debug, PartialEq, Eq)]
pub enum SocketEvent {
    /// It is there.
    Opened,
    /// The client has sent a message.
    Message(Message),
    /// The client has taken all that has waited for it.
    Drained,
    /// The server is going to close it.
    Shutdown,
    /// It is over: there is no event after this one.
    Ended(CloseCode),
}

/// The state of an upgraded connection.
#[derive(Debug)]
pub(crate) struct Upgraded {
    protocol: Protocol,
    stage: Stage,
    /// The owner knows nothing of it yet.
    is_new: bool,
    /// The owner handles an event of it.
    is_busy: bool,
    /// A message for the owner.
    message: Option<Message>,
    /// What was sent last did not leave at once.
    has_waited: bool,
    /// The owner is told when nothing waits any more, if it wants that.
    wants_drained: bool,
    is_drained: bool,
    /// A ping was sent, and nothing has come since.
    is_pinged: bool,
    farewell: Farewell,
}

#[derive(Debug)]
enum Protocol {
    WebSocket { decoder: Decoder, is_compressed: bool },
    Events,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Open,
    /// The server has sent its close frame, and waits for the client's.
    Closing,
    /// All is said; it ends when that is sent.
    Leaving(CloseCode),
    /// The client broke a rule, and was told; what it sends is discarded.
    Broken(CloseCode),
    /// It is closed, and its owner is to be told.
    Ended(CloseCode),
}

impl Upgraded {
    pub(crate) fn new(to: UpgradeTo, wants_drained: bool) -> Self {
        let protocol = match to {
            UpgradeTo::WebSocket { is_compressed } => {
                Protocol::WebSocket { decoder: Decoder::default(), is_compressed }
            }
            UpgradeTo::Events => Protocol::Events,
        };
        Self {
            protocol,
            stage: Stage::Open,
            is_new: true,
            is_busy: false,
            message: None,
            has_waited: false,
            wants_drained,
            is_drained: false,
            is_pinged: false,
            farewell: Farewell::None,
        }
    }

    /// Whether its socket is closed already.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Ended(_))
    }

    fn has_event(&self) -> bool {
        let is_due = self.is_drained || self.farewell.is_due();
        !self.is_busy && (self.is_new || self.message.is_some() || is_due || self.is_over())
    }

    /// What its owner is told next.
    fn take_event(&mut self) -> Option<SocketEvent> {
        if self.is_busy {
            return None;
        }
        let event = if std::mem::take(&mut self.is_new) {
            SocketEvent::Opened
        } else if let Some(message) = self.message.take() {
            SocketEvent::Message(message)
        } else if let Stage::Ended(code) = self.stage {
            SocketEvent::Ended(code)
        } else if std::mem::take(&mut self.is_drained) {
            SocketEvent::Drained
        } else if self.farewell.tell() {
            SocketEvent::Shutdown
        } else {
            return None;
        };
        self.is_busy = true;
        Some(event)
    }

    /// When something is to be done about it, if it was heard of last at `since_ms`.
    pub(crate) fn deadline_ms(&self, since_ms: u64, ping_ms: u64) -> Option<u64> {
        match self.stage {
            Stage::Ended(_) => return None,
            Stage::Closing | Stage::Broken(_) => return Some(since_ms + CLOSE_MS),
            Stage::Open | Stage::Leaving(_) => {}
        }
        let periods = 1 + u64::from(self.is_pinged);
        let ping = (ping_ms > 0).then(|| since_ms + periods * ping_ms);
        [ping, self.farewell.planned_ms()].into_iter().flatten().min()
    }
}

/// The state of a connection that was upgraded.
fn state(connection: &Connection) -> Option<&Upgraded> {
    match &connection.phase {
        Phase::Upgraded(upgraded) => Some(upgraded),
        _ => None,
    }
}

fn state_mut(connection: &mut Connection) -> Option<&mut Upgraded> {
    match &mut connection.phase {
        Phase::Upgraded(upgraded) => Some(upgraded),
        _ => None,
    }
}

/// Whether a turn would make progress.
pub(crate) fn has_work(connection: &Connection) -> bool {
    let has_event = state(connection).is_some_and(Upgraded::has_event);
    has_event || can_flush(connection) || can_read(connection)
}

/// Whether only the owner could make progress.
pub(crate) fn needs_handler(connection: &Connection) -> bool {
    let has_event = state(connection).is_some_and(Upgraded::has_event);
    has_event && !can_flush(connection) && !can_read(connection)
}

fn can_flush(connection: &Connection) -> bool {
    connection.output.is_some() && connection.is_writable
}

fn can_read(connection: &Connection) -> bool {
    let Some(upgraded) = state(connection) else { return false };
    let has_input = connection.is_readable || connection.seen < connection.input.len();
    let has_room = upgraded.message.is_none() && !upgraded.is_over();
    has_input && has_room && connection.backlog_bytes() <= READ_BACKLOG_BYTES_MAX
}

/// A turn: it writes, hands an event to the owner, or reads.
pub(crate) fn turn(
    connections: &mut Connections,
    id: ConnectionId,
    inbox: &mut [u8],
    handler: &mut impl Handler,
) {
    if connections.slab.get(id).is_some_and(can_flush) {
        return connections.flush(id);
    }
    if hand_over(connections, id, handler) {
        return;
    }
    if connections.slab.get(id).is_some_and(can_read) {
        read(connections, id, inbox);
        hand_over(connections, id, handler);
    }
}

/// Hands an event to the owner; false if there is none, or the owner is not there.
fn hand_over(connections: &mut Connections, id: ConnectionId, handler: &mut impl Handler) -> bool {
    let Some(connection) = connections.slab.get_mut(id) else { return false };
    let ticket = Ticket { connection: id, request: connection.request };
    let event = state_mut(connection).filter(|_| handler.is_present());
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
    if let Some(upgraded) = state_mut(connection).filter(|state| state.stage == Stage::Open) {
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
    let Some(upgraded) = state_mut(connection) else { return said };
    let is_open = upgraded.stage == Stage::Open;
    let Protocol::WebSocket { decoder, is_compressed } = &mut upgraded.protocol else {
        return said;
    };
    if !is_open && upgraded.stage != Stage::Closing {
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
    let Some(upgraded) = connections.slab.get_mut(id).and_then(state_mut) else { return };
    let is_first = upgraded.stage == Stage::Open;
    let (stage, last) = match end {
        None => (upgraded.stage, Vec::new()),
        Some(Ok(code)) if is_first => (Stage::Leaving(code), websocket::close(code, "")),
        Some(Ok(code)) => (Stage::Leaving(code), Vec::new()),
        Some(Err(fault)) => (Stage::Broken(fault.code), websocket::close(fault.code, fault.reason)),
    };
    upgraded.stage = stage;
    if !pongs.is_empty() || end.is_some() {
        send(connections, id, &[pongs, last].concat());
    }
}

/// Sends frames, as far as the client takes them now.
fn send(connections: &mut Connections, id: ConnectionId, frames: &[u8]) {
    let now_ms = connections.clock.now_ms;
    let Some(connection) = connections.slab.get_mut(id) else { return };
    let is_open = state(connection).is_some_and(|state| state.stage == Stage::Open);
    if !is_open {
        connection.since_ms = now_ms;
    }
    let flushed = connection.deliver(frames, Payload::Empty, frames.len() + QUANTUM_BYTES);
    connections.after_flush(id, flushed);
}

/// Goes on after a write.
pub(crate) fn after_flush(connections: &mut Connections, id: ConnectionId, flushed: Flushed) {
    let Some(connection) = connections.slab.get_mut(id) else { return };
    let Some(upgraded) = state_mut(connection) else { return };
    if flushed != Flushed::Done {
        upgraded.has_waited = true;
        return;
    }
    upgraded.is_drained |= std::mem::take(&mut upgraded.has_waited) && upgraded.wants_drained;
    match upgraded.stage {
        Stage::Leaving(code) => finish(connections, id, code),
        Stage::Broken(_) => {
            connection.say_end();
            // It fails only if the client is gone, which the next read tells.
            let _ = rustix::net::shutdown(&connection.socket, rustix::net::Shutdown::Write);
        }
        Stage::Open | Stage::Closing | Stage::Ended(_) => {}
    }
}

/// The client sends nothing more.
fn hear_end(connections: &mut Connections, id: ConnectionId) {
    let stage = connections.slab.get(id).and_then(state).map(|state| state.stage);
    let code = match stage {
        Some(Stage::Leaving(code) | Stage::Broken(code)) => code,
        _ => CloseCode::ABNORMAL,
    };
    finish(connections, id, code);
}

/// Closes the socket. The owner is told in the connection's next turn.
pub(crate) fn finish(connections: &mut Connections, id: ConnectionId, code: CloseCode) {
    let Some(connection) = connections.slab.get_mut(id) else { return };
    let Some(upgraded) = state_mut(connection) else { return };
    if upgraded.is_over() {
        return;
    }
    upgraded.stage = Stage::Ended(code);
    connection.say_end();
    // It fails only if the client is gone.
    let _ = rustix::net::shutdown(&connection.socket, rustix::net::Shutdown::Both);
    connection.output = None;
    connection.input = Vec::new();
    connection.seen = 0;
    connections.poller.remove(&connection.socket);
    connections.held_bytes -= std::mem::take(&mut connection.held_bytes);
    connections.settle(id);
}

/// A deadline has come: a ping is due, or the time for something is over.
pub(crate) fn expire(connections: &mut Connections, id: ConnectionId) {
    let now_ms = connections.clock.now_ms;
    let Some(connection) = connections.slab.get_mut(id) else { return };
    let since_ms = connection.since_ms;
    let Some(upgraded) = state_mut(connection) else { return };
    let is_silent =
        upgraded.is_pinged && since_ms + 2 * connections.settings.socket_ping_ms <= now_ms;
    match upgraded.stage {
        Stage::Broken(code) => finish(connections, id, code),
        Stage::Closing => finish(connections, id, CloseCode::ABNORMAL),
        _ if upgraded.farewell.come(now_ms) => connections.settle(id),
        _ if is_silent => finish(connections, id, CloseCode::ABNORMAL),
        _ => ping(connections, id),
    }
}

fn ping(connections: &mut Connections, id: ConnectionId) {
    let now_ms = connections.clock.now_ms;
    let Some(connection) = connections.slab.get_mut(id) else { return };
    let Some(upgraded) = state_mut(connection) else { return };
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
