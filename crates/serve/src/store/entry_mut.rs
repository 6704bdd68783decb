//! An open entry together with the store that holds it.
//!
//! Most operations on a connection change its entry and the store at once: a write may end the connection, and a turn
//! sets a deadline and enqueues the entry. [`EntryMut`] holds both, so an id is looked up once rather than in each
//! function. A method that may close the entry consumes the guard, and returns the guard only if the entry is still
//! open.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::Shutdown;
use thruway_http2::Stream;
use thruway_websocket::CloseCode;

use crate::entry::cache_role::CacheRole;
use crate::entry::carrier::{Carrier, StreamLink};
use crate::entry::input::Input;
use crate::entry::multiplexer::Multiplexer;
use crate::entry::socket_state::SocketState;
use crate::entry::ticket::Ticket;
use crate::entry::upload::Upload;
use crate::entry::{self, Entry, State, stream_of};
use crate::events::clock::monotonic_us;
use crate::events::slab::EntryId;
use crate::events::token::Token;
use crate::output::FlushOutcome;
use crate::store::Store;
use crate::store::service_state::ServiceState;

/// The bytes of a response that are kept in memory before any are spooled to a file.
const SPOOLED_BYTES_MIN: usize = 64 << 10;

/// An open entry, and the store that holds it.
///
/// While a guard exists, its id belongs to an open entry. Code that closes entries without the guard (for example, a
/// connection with all its streams) consumes the guard first ([`into_parts`](Self::into_parts)), or calls
/// [`if_open`](Self::if_open) afterwards.
#[derive(Debug)]
pub(crate) struct EntryMut<'a> {
    pub(crate) store: &'a mut Store,
    id: EntryId,
}

impl Deref for EntryMut<'_> {
    type Target = Entry;

    fn deref(&self) -> &Entry {
        &self.store.slab[self.id]
    }
}

impl DerefMut for EntryMut<'_> {
    fn deref_mut(&mut self) -> &mut Entry {
        &mut self.store.slab[self.id]
    }
}

impl Store {
    /// Returns the entry with the given id, unless the entry was closed.
    pub(crate) fn find(&mut self, id: EntryId) -> Option<EntryMut<'_>> {
        self.slab.get(id)?;
        Some(EntryMut::new(self, id))
    }

    /// Returns the entry with the given id. The caller guarantees that the entry is open.
    pub(crate) fn at(&mut self, id: EntryId) -> EntryMut<'_> {
        EntryMut::new(self, id)
    }

    /// Returns the entry of a request that is still with its handler: the response is not complete yet.
    pub(crate) fn find_request(&mut self, ticket: Ticket) -> Option<EntryMut<'_>> {
        let entry = self.slab.get(ticket.connection)?;
        entry.is_of(ticket).then(|| EntryMut::new(self, ticket.connection))
    }

    /// Registers a new connection.
    pub(crate) fn open(&mut self, mut entry: Entry) -> Result<EntryId, Errno> {
        if self.tls.is_spoken_at(entry.listener) {
            entry.state = State::Handshaking;
        }
        let share = entry.share;
        let id = self.slab.insert(entry);
        if let Some(socket) = self.slab[id].carrier.socket() {
            let word = Token::Connection(id).to_word();
            if let Err(errno) = self.poller.add_connection(socket, word) {
                self.slab.remove(id);
                return Err(errno);
            }
        }
        self.activity.enter(share);
        EntryMut::new(self, id).set_deadline();
        Ok(id)
    }

    /// Registers a stream of the connection `parent`, with a request whose head is complete.
    pub(crate) fn open_stream(
        &mut self,
        parent: EntryId,
        stream: Stream,
        upload: Upload,
    ) -> EntryMut<'_> {
        let (number, now_ms) = (stream.number(), self.clock.now_ms);
        let link = StreamLink::new(parent, stream);
        let entry = stream_of(&self.slab[parent], link, upload, now_ms);
        let id = self.slab.insert(entry);
        self.streams += 1;
        if let Some(multiplexer) = self.find_multiplexer(parent) {
            multiplexer.enter(number, id);
        }
        EntryMut::new(self, id)
    }

    /// Registers a background request, whose response no client waits for. The entry takes its peer, its listener and
    /// its trust from `origin`.
    pub(crate) fn open_background(&mut self, origin: EntryId, upload: Upload, role: CacheRole) {
        let now_ms = self.clock.now_ms;
        let is_tls = self.at(origin).speaks_tls();
        let mut entry = entry::background_of(&self.slab[origin], is_tls, upload, now_ms);
        entry.cache_role = Some(role);
        let share = entry.share;
        let id = self.slab.insert(entry);
        self.activity.enter(share);
        EntryMut::new(self, id).enqueue();
    }

    /// Closes an entry, if it is open.
    pub(crate) fn close(&mut self, id: EntryId) -> Option<Entry> {
        self.find(id)?.close()
    }

    /// Ends a turn of the entry, unless the turn has closed the entry.
    pub(crate) fn settle(&mut self, id: EntryId) {
        if let Some(mut entry) = self.find(id) {
            entry.settle();
        }
    }

    /// Removes an entry, together with its streams.
    fn remove(&mut self, id: EntryId) -> Option<Entry> {
        self.turns.remove(id.slot());
        self.deadlines.remove(id.slot());
        let is_full = self.count() >= self.settings.connections_max;
        let mut closed = self.slab.remove(id)?;
        let streams = closed.multiplexer().map_or(Vec::new(), Multiplexer::streams);
        for stream in streams {
            self.close(stream);
        }
        if let Some(link) = closed.carrier.stream_mut() {
            self.leave_parent(link);
        }
        self.activity.leave(closed.share);
        self.held_bytes -= closed.held_bytes;
        if let Some(metrics) = self.metrics.as_ref().filter(|_| closed.is_counted()) {
            metrics.count_aborted();
        }
        self.leave_client(closed.turn.position);
        // A waiting thread may have stopped watching the listeners because the server was full.
        self.has_news |= is_full && self.count() < self.settings.connections_max;
        Some(closed)
    }

    /// Detaches a closed stream from its connection. An incomplete stream is reset, and the connection gets a turn to
    /// send the reset.
    fn leave_parent(&mut self, link: &mut StreamLink) {
        self.streams -= 1;
        let now_ms = self.clock.now_ms;
        // If the connection has been closed, so have all its streams.
        let Some(parent) = self.slab.get_mut(link.parent) else { return };
        let Some(multiplexer) = parent.multiplexer_mut() else { return };
        multiplexer.leave(link.stream.number());
        parent.since_ms = now_ms;
        if !link.stream.is_whole() {
            link.stream.reset();
            self.let_parent_flush(link.parent);
        }
    }

    /// Gives the connection of a stream that was reset or ended a turn to send the change, if the connection is still
    /// open.
    fn let_parent_flush(&mut self, parent: EntryId) {
        if let Some(multiplexer) = self.find_multiplexer(parent) {
            multiplexer.needs_flush = true;
            EntryMut::new(self, parent).enqueue();
        }
    }
}

impl<'a> EntryMut<'a> {
    /// Creates the guard of an entry. The caller guarantees that the entry is open.
    fn new(store: &'a mut Store, id: EntryId) -> Self {
        Self { store, id }
    }

    pub(crate) fn id(&self) -> EntryId {
        self.id
    }

    /// Lends the guard to a function that may close the entry. Afterwards, [`if_open`](Self::if_open) checks whether
    /// the entry is still open.
    pub(crate) fn reborrow(&mut self) -> EntryMut<'_> {
        EntryMut { store: &mut *self.store, id: self.id }
    }

    /// Gives up the guard, for code that also accesses other entries.
    pub(crate) fn into_parts(self) -> (&'a mut Store, EntryId) {
        (self.store, self.id)
    }

    /// Returns the guard, unless the entry has been closed.
    pub(crate) fn if_open(self) -> Option<Self> {
        self.store.find(self.id)
    }

    /// Whether the connection ends after its response: every connection does, or the server hands its connections over
    /// and this connection is bound to the process.
    pub(crate) fn closes_after_response(&self) -> bool {
        let stage = self.store.service;
        stage.closes_after_response() || stage.hands_over() && self.is_bound()
    }

    /// Closes the entry, with its streams. Its socket is closed when the returned entry is dropped. Returns `None` for
    /// an upgraded connection whose owner has yet to hear of the end: its entry stays until that turn.
    pub(crate) fn close(self) -> Option<Entry> {
        if entry::upgraded(&self).is_some_and(|upgraded| upgraded.state != SocketState::Reported) {
            self.finish_upgraded(CloseCode::ABNORMAL);
            return None;
        }
        self.store.remove(self.id)
    }

    /// Closes the connection in the middle of a response.
    pub(crate) fn reset(self) {
        let closed = self.close();
        if let Some(socket) = closed.as_ref().and_then(|closed| closed.carrier.socket()) {
            // Without a reset, the client could mistake the end of the connection for the end of the body.
            let _ = rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO));
        }
    }

    /// Whether the client speaks TLS with this server. For a stream, the connection holds the TLS session.
    pub(crate) fn speaks_tls(&self) -> bool {
        let slab = &self.store.slab;
        let connection = match &self.carrier {
            Carrier::Nobody { is_tls } => return *is_tls,
            Carrier::Socket(_) => slab.get(self.id),
            Carrier::Stream(link) => slab.get(link.parent),
        };
        connection.is_some_and(|connection| connection.session().is_some())
    }

    /// Begins a request, and invalidates the tickets of the connection's earlier requests.
    pub(crate) fn begin_request(&mut self) -> Ticket {
        let number = self.store.next_request();
        let entry = &mut **self;
        entry.request = number;
        entry.state = State::Handling;
        let standing = std::mem::take(&mut entry.turn.position);
        self.store.leave_client(standing);
        Ticket { connection: self.id, request: number }
    }

    /// Ends a turn: sets the next deadline, and enqueues the entry if more work is left.
    pub(crate) fn settle(&mut self) {
        let entry = &mut self.store.slab[self.id];
        if entry.has_work() {
            self.store.turns.enqueue(self.id.slot(), entry, monotonic_us());
        }
        self.set_deadline();
    }

    pub(crate) fn set_deadline(&mut self) {
        let entry = &mut self.store.slab[self.id];
        self.store.deadlines.update(self.id.slot(), entry, self.store.clock.now_ms);
    }

    /// Enqueues the entry now, even without an event on its connection.
    pub(crate) fn enqueue(&mut self) {
        let entry = &mut self.store.slab[self.id];
        self.store.turns.enqueue(self.id.slot(), entry, self.store.clock.now_us);
    }

    /// Sends the waiting output, and continues with the connection once everything is sent.
    pub(crate) fn flush(mut self) -> Option<Self> {
        let turn_bytes = self.store.turn_bytes();
        let flushed = self.send_waiting(turn_bytes);
        self.after_flush(flushed)
    }

    /// Continues after a write: once the response is sent, the connection awaits its next request or closes.
    pub(crate) fn after_flush(mut self, flushed: Result<FlushOutcome, Errno>) -> Option<Self> {
        let now_ms = self.store.clock.now_ms;
        let is_draining = self.store.service == ServiceState::Draining;
        let entry = &mut *self;
        let still_open = match (flushed, &entry.state) {
            (Err(_), _) => {
                self.close();
                return None;
            }
            (Ok(FlushOutcome::Done), State::Responding) => {
                entry.state = State::Waiting;
                entry.is_fresh = false;
                entry.since_ms = now_ms;
                entry.turn.responded_us = monotonic_us();
                // The head of this response may have promised another request before the server began to drain, and no
                // later event need close the connection.
                let is_last = is_draining && entry.awaits_event();
                if entry.is_persistent && !is_last { Some(self) } else { self.hang_up() }
            }
            (Ok(flushed), State::Upgraded(_)) => {
                self.after_flush_upgraded(flushed);
                Some(self)
            }
            (Ok(_), _) => Some(self),
        };
        still_open?.account_held(flushed == Ok(FlushOutcome::Blocked))
    }

    /// Accounts for the memory that the client's output occupies, and spools the excess to a file. Spooling happens
    /// when the client takes nothing now, or when the other responses alone exceed the worker's memory limit.
    pub(crate) fn account_held(self, is_blocked: bool) -> Option<Self> {
        let entry = &mut self.store.slab[self.id];
        let others = self.store.held_bytes - entry.held_bytes;
        let settings = &self.store.settings;
        let mut most = settings.worker_memory_bytes_max.saturating_sub(others);
        if matches!(entry.state, State::Streaming(_)) {
            most = most.min(settings.response_memory_bytes_max);
        }
        let most = most.max(SPOOLED_BYTES_MIN);
        let is_due = is_blocked || others >= settings.worker_memory_bytes_max;
        if is_due
            && settings.response_file_bytes_max > 0
            && let Some(output) = entry.output.as_mut()
            && output.memory_bytes() > most
            && let Err(error) = output.spool(most)
        {
            self.store.warn("store the unsent part of a response, so its client is cut off", error);
            self.reset();
            return None;
        }
        entry.held_bytes = entry.memory_bytes();
        self.store.held_bytes = others + entry.held_bytes;
        Some(self)
    }

    /// Closes the connection after its last response. If the client may still be sending, the connection lingers: an
    /// immediate close would reset the connection, and the client could lose the response (RFC 9112, section 9.6).
    pub(crate) fn hang_up(mut self) -> Option<Self> {
        let now_ms = self.store.clock.now_ms;
        let entry = &mut *self;
        if entry.input.bytes.is_empty() && !entry.readiness.is_readable {
            entry.send_close_notify();
            self.close();
            return None;
        }
        entry.linger(now_ms);
        Some(self)
    }

    /// Continues after a write to an upgraded connection.
    fn after_flush_upgraded(&mut self, flushed: FlushOutcome) {
        let entry = &mut **self;
        let Some(upgraded) = entry::upgraded_mut(entry) else { return };
        if flushed != FlushOutcome::Done {
            upgraded.has_waited = true;
            return;
        }
        upgraded.is_drained |= std::mem::take(&mut upgraded.has_waited) && upgraded.wants_drained;
        match upgraded.state {
            SocketState::Flushing(code) => self.reborrow().finish_upgraded(code),
            SocketState::Broken(_) => {
                entry.send_close_notify();
                entry.carrier.shut(Shutdown::Write);
            }
            SocketState::Open
            | SocketState::Closing
            | SocketState::Closed(_)
            | SocketState::Reported => {}
        }
    }

    /// Closes the socket of an upgraded connection. The entry stays until its owner has been notified of the end, in
    /// the entry's next turn.
    pub(crate) fn finish_upgraded(mut self, code: CloseCode) {
        let entry = &mut self.store.slab[self.id];
        let Some(upgraded) = entry::upgraded_mut(entry) else { return };
        if upgraded.is_over() {
            return;
        }
        upgraded.state = SocketState::Closed(code);
        entry.send_close_notify();
        entry.carrier.shut(Shutdown::Both);
        entry.output = None;
        entry.input = Input::default();
        if let Some(socket) = entry.carrier.socket() {
            self.store.poller.remove(socket);
        }
        self.store.held_bytes -= std::mem::take(&mut entry.held_bytes);
        if let Some(link) = entry.carrier.stream_mut() {
            link.end(code != CloseCode::ABNORMAL);
            let parent = link.parent;
            self.store.let_parent_flush(parent);
        }
        self.settle();
    }
}
