//! An engine's connections, and what happens to each between its turns.
//!
//! Reading order: this file finds, opens, flushes and closes connections. `turns` keeps the order in which they are
//! served, `deadlines` the time that each has left. `tls_listeners` holds the certificates of the listeners, `stage`
//! the state of the service, and `warnings` the text for the log.

pub(crate) mod deadlines;
pub(crate) mod stage;
pub(crate) mod tls_listeners;
pub(crate) mod turns;
pub(crate) mod warnings;

use std::io;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::Shutdown;
use thruway_websocket::{CloseCode, Deflater};

use thruway_http2::Stream;

use crate::entry::activity::Activity;
use crate::entry::carrier::StreamLink;
use crate::entry::socket_state::SocketStage;
use crate::entry::ticket::Ticket;
use crate::entry::upload::Upload;
use crate::entry::{self, Connection, Phase, stream_of};
use crate::events::clock::{Clock, monotonic_us};
use crate::events::poller::{Event, Poller};
use crate::events::slab::{ConnectionId, Slab};
use crate::events::token::Token;
use crate::metrics::WorkerMetrics;
use crate::output::{Flushed, QUANTUM_BYTES};
use crate::queue::client_queue::ClientQueues;
use crate::queue::client_turns::ClientTurns;
use crate::queue::standing::Standing;
use crate::queue::waits::Waits;
use crate::settings::Settings;
use crate::settings::fair_by::FairBy;
use crate::store::deadlines::Deadlines;
use crate::store::stage::Stage;
use crate::store::tls_listeners::TlsListeners;
use crate::store::turns::Turns;
use crate::store::warnings::Warnings;
use crate::workers::Siblings;
use crate::workers::faulty_peers::FaultyPeers;

/// Quanta of one body in a turn, while no shorter work waits: a call costs more than its bytes do. A connection that
/// becomes ready meanwhile waits for less than a millisecond.
const BULK_QUANTA: usize = 8;

/// In a longer queue each turn is one quantum: the queue is not searched.
const BULK_QUEUE_MAX: usize = 32;

/// A response keeps this much in memory before any of it goes to a file.
const SPOOLED_BYTES_MIN: usize = 64 << 10;

/// The registry of connections: where each is, when its next turn is, and when its time is over.
#[derive(Debug)]
pub(crate) struct Connections {
    pub(crate) poller: Poller,
    pub(crate) slab: Slab<Connection>,
    pub(crate) turns: Turns,
    pub(crate) deadlines: Deadlines,
    pub(crate) activity: Activity,
    pub(crate) clock: Clock,
    pub(crate) settings: Settings,
    pub(crate) warnings: Warnings,
    /// Peers that have sent what ended a connection.
    pub(crate) faulty_peers: Arc<FaultyPeers>,
    pub(crate) tls: TlsListeners,
    pub(crate) stage: Stage,
    /// Bytes of responses that wait in memory.
    pub(crate) held_bytes: usize,
    /// Where requests are counted, if they are.
    pub(crate) metrics: Option<WorkerMetrics>,
    /// By listener: the host that it was told to listen as; none of a unix socket.
    pub(crate) observed_as: Vec<Option<String>>,
    /// What the other workers have to do.
    pub(crate) siblings: Option<Siblings>,
    /// Where short responses are written; empty between two of them.
    pub(crate) scratch: Vec<u8>,
    /// What decompresses messages, once one has come that is compressed.
    pub(crate) deflater: Option<Box<Deflater>>,
    /// Requests so far: the number of the last one.
    requests: u64,
    /// How many entries are streams of others.
    streams: usize,
    /// Connections of HTTP/2 with responses that wait for others.
    pub(crate) corked: Vec<ConnectionId>,
    /// When the first of them began to wait.
    pub(crate) corked_us: u64,
    /// A response has left other work, or room: the thread that waits is to be woken.
    pub(crate) has_news: bool,
}

impl Connections {
    pub(crate) fn new(
        poller: Poller,
        settings: Settings,
        client_turns: Arc<ClientTurns>,
        faulty_peers: Arc<FaultyPeers>,
        tls: TlsListeners,
    ) -> Self {
        let clock = Clock::new();
        let by_client = settings.fair_by != FairBy::Connection;
        let clients = ClientQueues::new(client_turns);
        let waits = settings.queue_ms.map(|_| Waits::default());
        Self {
            poller,
            slab: Slab::new(),
            turns: Turns::new(clients, by_client, waits),
            deadlines: Deadlines::new(&settings, clock.now_ms),
            activity: Activity::default(),
            clock,
            settings,
            warnings: Warnings::default(),
            faulty_peers,
            tls,
            stage: Stage::Serving,
            held_bytes: 0,
            metrics: None,
            observed_as: Vec::new(),
            siblings: None,
            scratch: Vec::new(),
            deflater: None,
            requests: 0,
            streams: 0,
            corked: Vec::new(),
            corked_us: 0,
            has_news: false,
        }
    }

    /// Notes what cannot be done, for the log; `doing` completes "cannot …".
    pub(crate) fn warn(&mut self, doing: &'static str, source: impl Into<io::Error>) {
        self.warnings.note(self.clock.now_ms, doing, source);
    }

    /// Open connections; streams are none.
    pub(crate) fn count(&self) -> usize {
        self.slab.len() - self.streams
    }

    /// Whether a connection ends after its response: all do, or others go on with them, and this one is bound to this
    /// process.
    pub(crate) fn parts_with(&self, id: ConnectionId) -> bool {
        let is_bound = || self.slab.get(id).is_some_and(Connection::is_bound);
        self.stage.parts() || self.stage.passes_on() && is_bound()
    }

    /// The connection in a slot.
    pub(crate) fn in_slot(&self, slot: u32) -> Option<&Connection> {
        self.slab.id_at(slot).and_then(|id| self.slab.get(id))
    }

    /// Notes an event on a connection, and enqueues it if it has work now.
    pub(crate) fn note(&mut self, id: ConnectionId, event: Event) {
        let Some(connection) = self.slab.get_mut(id) else { return };
        connection.is_readable |= event.is_readable;
        connection.is_writable |= event.is_writable;
        connection.is_ended |= event.is_ended;
        if connection.has_work() {
            self.turns.enqueue(id.slot(), connection, self.clock.now_us);
        }
    }

    /// Enqueues a connection that another worker has sent, with the key that it had there.
    pub(crate) fn enqueue_moved(&mut self, id: ConnectionId) {
        if let Some(connection) = self.slab.get_mut(id) {
            connection.here_us = self.clock.now_us;
            self.turns.enqueue_moved(id.slot(), connection);
        }
    }

    /// The lowest key in the run queue, and since when its connection has waited here.
    pub(crate) fn oldest(&self) -> Option<(u64, u64)> {
        let (slot, key_us) = self.turns.find_oldest(|_| true)?;
        self.in_slot(slot).map(|connection| (key_us, connection.here_us))
    }

    /// Begins the turn of the connection in `slot`, and says whose it is: a stream's is that of its connection. None if
    /// it has no work any more.
    pub(crate) fn begin_turn(&mut self, slot: u32) -> Option<(ConnectionId, ConnectionId)> {
        let id = self.slab.id_at(slot)?;
        let keeps_back = self.stage == Stage::Holding;
        let connection = self.slab.get_mut(id).filter(|connection| {
            connection.has_work() && !(keeps_back && connection.awaits_request())
        })?;
        if let Some(link) = connection.carrier.stream() {
            return Some((id, link.parent));
        }
        self.activity.note_turn(&mut connection.share);
        Some((id, id))
    }

    /// Registers a new connection.
    pub(crate) fn open(&mut self, mut connection: Connection) -> Result<ConnectionId, Errno> {
        if self.tls.is_spoken_at(connection.listener) {
            connection.phase = Phase::Handshaking;
        }
        let share = connection.share;
        let id = self.slab.insert(connection);
        if let Some(socket) = self.slab.get(id).and_then(|connection| connection.carrier.socket()) {
            let word = Token::Connection(id).to_word();
            if let Err(errno) = self.poller.add_connection(socket, word) {
                self.slab.remove(id);
                return Err(errno);
            }
        }
        self.activity.enter(share);
        self.set_deadline(id);
        Ok(id)
    }

    /// Registers a stream of `parent`, with a request whose head is whole.
    pub(crate) fn open_stream(
        &mut self,
        parent: ConnectionId,
        stream: Stream,
        upload: Upload,
    ) -> Option<ConnectionId> {
        let (number, now_ms) = (stream.number(), self.clock.now_ms);
        let link = StreamLink::new(parent, stream);
        let connection = stream_of(self.slab.get(parent)?, link, upload, now_ms);
        let id = self.slab.insert(connection);
        self.streams += 1;
        let multiplexer = self.slab.get_mut(parent).and_then(|it| it.multiplexer.as_mut());
        if let Some(multiplexer) = multiplexer {
            multiplexer.enter(number, id);
        }
        Some(id)
    }

    /// Takes a connection out of the registry, with its streams. Its socket is closed when it is dropped. An upgraded
    /// one stays until its owner is told of its end.
    pub(crate) fn close(&mut self, id: ConnectionId) -> Option<Connection> {
        if let Phase::Upgraded(upgraded) = &self.slab.get(id)?.phase
            && !upgraded.is_over()
        {
            finish_upgraded(self, id, CloseCode::ABNORMAL);
            return None;
        }
        self.turns.remove(id.slot());
        self.deadlines.remove(id.slot());
        let is_full = self.count() >= self.settings.connections_max;
        let mut closed = self.slab.remove(id)?;
        let streams = closed.multiplexer.as_ref().map_or(Vec::new(), |it| it.streams());
        for stream in streams {
            self.close(stream);
        }
        if let Some(link) = closed.carrier.stream_mut() {
            self.leave_parent(link);
        }
        self.activity.leave(closed.share);
        self.held_bytes -= closed.held_bytes;
        if let Some(metrics) = self.metrics.as_ref().filter(|_| closed.is_counted()) {
            metrics.abort();
        }
        self.leave_client(closed.standing);
        // A thread may wait that does not watch the listeners, for want of room.
        self.has_news |= is_full && self.count() < self.settings.connections_max;
        Some(closed)
    }

    /// A stream is closed: what is left of it is reset, and its connection has a turn to say so.
    fn leave_parent(&mut self, link: &mut StreamLink) {
        self.streams -= 1;
        let Some(parent) = self.slab.get_mut(link.parent) else { return };
        let Some(multiplexer) = parent.multiplexer.as_mut() else { return };
        multiplexer.leave(link.stream.number());
        parent.since_ms = self.clock.now_ms;
        if !link.stream.is_whole() {
            link.stream.reset();
            let_parent_flush(self, link.parent);
        }
    }

    /// Ends a connection in the middle of a response.
    pub(crate) fn reset(&mut self, id: ConnectionId) {
        let closed = self.close(id);
        if let Some(socket) = closed.as_ref().and_then(|connection| connection.carrier.socket()) {
            // Without a reset, the end of the connection could pass for the end of the body.
            let reset = Some(std::time::Duration::ZERO);
            let _ = rustix::net::sockopt::set_socket_linger(socket, reset);
        }
    }

    /// Begins a request on a connection. Tickets of its earlier requests end.
    pub(crate) fn begin_request(&mut self, id: ConnectionId) -> Option<Ticket> {
        let connection = self.slab.get_mut(id)?;
        self.requests += 1;
        connection.request = self.requests;
        connection.phase = Phase::Handling;
        let standing = std::mem::take(&mut connection.standing);
        self.leave_client(standing);
        Some(Ticket { connection: id, request: self.requests })
    }

    /// The connection of a request while its handler has it: there is no whole response yet.
    pub(crate) fn connection_of(&mut self, ticket: Ticket) -> Option<&mut Connection> {
        self.slab.get_mut(ticket.connection).filter(|connection| connection.is_of(ticket))
    }

    /// Sends what waits on a connection, and goes on with it when all is sent.
    pub(crate) fn flush(&mut self, id: ConnectionId) {
        let turn_bytes = self.turn_bytes();
        let Some(connection) = self.slab.get_mut(id) else { return };
        let flushed = connection.flush(turn_bytes);
        self.after_flush(id, flushed);
    }

    /// How many bytes of a body may leave in this turn: several quanta while all that wait send bodies themselves,
    /// otherwise one.
    pub(crate) fn turn_bytes(&self) -> usize {
        let wants_little = |slot| {
            let connection = self.in_slot(slot);
            connection
                .is_some_and(|connection| connection.output.is_none() && connection.has_work())
        };
        let is_long = self.turns.len() > BULK_QUEUE_MAX;
        if is_long || self.turns.slots().any(wants_little) {
            QUANTUM_BYTES
        } else {
            QUANTUM_BYTES * BULK_QUANTA
        }
    }

    /// Ends a turn: sets the next deadline and, if there is more to do, enqueues the connection.
    pub(crate) fn settle(&mut self, id: ConnectionId) {
        let Some(connection) = self.slab.get_mut(id) else { return };
        if connection.has_work() {
            self.turns.enqueue(id.slot(), connection, monotonic_us());
        }
        self.set_deadline(id);
    }

    pub(crate) fn set_deadline(&mut self, id: ConnectionId) {
        if let Some(connection) = self.slab.get_mut(id) {
            self.deadlines.update(id.slot(), connection, self.clock.now_ms);
        }
    }

    /// Goes on after a write: to the next request when the response is sent.
    pub(crate) fn after_flush(&mut self, id: ConnectionId, flushed: Result<Flushed, Errno>) {
        let Some(connection) = self.slab.get_mut(id) else { return };
        match flushed {
            Err(_) => {
                self.close(id);
            }
            Ok(Flushed::Done) if matches!(connection.phase, Phase::Responding) => {
                connection.phase = Phase::Waiting;
                connection.is_fresh = false;
                connection.since_ms = self.clock.now_ms;
                connection.responded_us = monotonic_us();
                if !connection.is_persistent {
                    self.hang_up(id);
                }
            }
            Ok(flushed) if matches!(connection.phase, Phase::Upgraded(_)) => {
                after_flush_upgraded(self, id, flushed);
            }
            Ok(_) => {}
        }
        self.hold(id, flushed == Ok(Flushed::Blocked));
    }

    /// Counts what waits in memory for a client, and spools what is too much. That happens when the client takes
    /// nothing now, or when the other responses alone fill the worker's memory.
    pub(crate) fn hold(&mut self, id: ConnectionId, is_blocked: bool) {
        let Some(connection) = self.slab.get_mut(id) else { return };
        let others = self.held_bytes - connection.held_bytes;
        let settings = &self.settings;
        let mut most = settings.worker_memory_bytes_max.saturating_sub(others);
        if matches!(connection.phase, Phase::Streaming(_)) {
            most = most.min(settings.response_memory_bytes_max);
        }
        let most = most.max(SPOOLED_BYTES_MIN);
        let is_due = is_blocked || others >= settings.worker_memory_bytes_max;
        if is_due
            && settings.response_file_bytes_max > 0
            && let Some(output) = connection.output.as_mut()
            && output.memory_bytes() > most
            && let Err(error) = output.spool(most)
        {
            self.warn("keep what a client has not taken, so that it is cut off", error);
            return self.reset(id);
        }
        connection.held_bytes = connection.memory_bytes();
        self.held_bytes = others + connection.held_bytes;
    }

    /// Closes after the last response. While the client may still be sending, a close at once would take the response
    /// back from it (RFC 9112, 9.6).
    pub(crate) fn hang_up(&mut self, id: ConnectionId) {
        let Some(connection) = self.slab.get_mut(id) else { return };
        if connection.input.is_empty() && !connection.is_readable {
            connection.say_end();
            self.close(id);
        } else {
            connection.linger(self.clock.now_ms);
        }
    }

    /// Takes a request out of the queues, also from behind its client's others: it is not served.
    pub(crate) fn take_out(&mut self, slot: u32) {
        self.turns.remove(slot);
        let connection = self.slab.id_at(slot).and_then(|id| self.slab.get_mut(id));
        let Some(connection) = connection else { return };
        let standing = std::mem::replace(&mut connection.standing, Standing::TakenOut);
        self.leave_client(standing);
    }

    /// A request waits no more. If it was its client's first, the next one of the client takes its place.
    fn leave_client(&mut self, standing: Standing) {
        let Standing::First(client) = standing else { return };
        let clients = &mut self.turns.clients;
        let is_parked = |id| {
            let connection = self.slab.get(id);
            connection.is_some_and(|connection| connection.standing == Standing::Parked(client))
        };
        let Some(next) = clients.leave(client, is_parked) else { return };
        if let Some(connection) = self.slab.get_mut(next) {
            connection.standing = Standing::First(client);
            connection.key_us = clients.first_key_us(client, connection.ready_us);
            self.turns.requeue(next.slot(), connection.key_us);
        }
    }
}

/// A stream was reset or ended: its connection has a turn to say so.
fn let_parent_flush(connections: &mut Connections, parent: ConnectionId) {
    let Some(connection) = connections.slab.get_mut(parent) else { return };
    let Some(multiplexer) = connection.multiplexer.as_mut() else { return };
    multiplexer.needs_flush = true;
    connections.turns.enqueue(parent.slot(), connection, connections.clock.now_us);
}

/// Goes on after a write to an upgraded connection.
fn after_flush_upgraded(connections: &mut Connections, id: ConnectionId, flushed: Flushed) {
    let Some(connection) = connections.slab.get_mut(id) else { return };
    let Some(upgraded) = entry::upgraded_mut(connection) else { return };
    if flushed != Flushed::Done {
        upgraded.has_waited = true;
        return;
    }
    upgraded.is_drained |= std::mem::take(&mut upgraded.has_waited) && upgraded.wants_drained;
    match upgraded.stage {
        SocketStage::Leaving(code) => finish_upgraded(connections, id, code),
        SocketStage::Broken(_) => {
            connection.say_end();
            connection.carrier.shut(Shutdown::Write);
        }
        SocketStage::Open | SocketStage::Closing | SocketStage::Ended(_) => {}
    }
}

/// Closes the socket of an upgraded connection. Its owner is told in the connection's next turn.
pub(crate) fn finish_upgraded(connections: &mut Connections, id: ConnectionId, code: CloseCode) {
    let Some(connection) = connections.slab.get_mut(id) else { return };
    let Some(upgraded) = entry::upgraded_mut(connection) else { return };
    if upgraded.is_over() {
        return;
    }
    upgraded.stage = SocketStage::Ended(code);
    connection.say_end();
    connection.carrier.shut(Shutdown::Both);
    connection.output = None;
    connection.input = Vec::new();
    connection.seen = 0;
    if let Some(socket) = connection.carrier.socket() {
        connections.poller.remove(socket);
    }
    connections.held_bytes -= std::mem::take(&mut connection.held_bytes);
    if let Some(link) = connection.carrier.stream_mut() {
        link.end(code != CloseCode::ABNORMAL);
        let parent = link.parent;
        let_parent_flush(connections, parent);
    }
    connections.settle(id);
}
