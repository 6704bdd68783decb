//! Writes to an upgraded connection for an engine's owner.

use std::io;

use thruway_websocket::{self as websocket, CloseCode};

use crate::entry::socket_state::{Protocol, SocketState, UpgradeTo, UpgradedSocket};
use crate::entry::ticket::Ticket;
use crate::entry::{self, Entry, State};
use crate::exchange::counting;
use crate::exchange::response::ResponseWriter;
use crate::exchange::upgraded;
use crate::exchange::upgraded::planned_close;
use crate::store::Store;
use crate::store::entry_mut::EntryMut;

/// A single upgraded connection, as long as it is open.
#[derive(Debug)]
pub struct SocketWriter<'a> {
    store: &'a mut Store,
    ticket: Ticket,
}

impl ResponseWriter<'_> {
    /// Sends a head and keeps the connection, which speaks another protocol after the head. Returns false if the
    /// request is over, or if the connection cannot be upgraded.
    pub fn upgrade(&mut self, head: &[u8], to: UpgradeTo, wants_drained: bool) -> bool {
        let now_ms = self.store.clock.now_ms;
        let Some(mut guard) = self.store.find_request(self.ticket) else { return false };
        let is_websocket = matches!(to, UpgradeTo::WebSocket { .. });
        let stream = guard.carrier.stream();
        let may = stream.is_none_or(|link| link.may_become(is_websocket));
        if !matches!(guard.state, State::Handling) || !may {
            return false;
        }
        counting::note_status(&mut guard, head);
        counting::end(&mut guard);
        let entry = &mut *guard;
        entry.cache_role = None;
        entry.state = State::Upgraded(Box::new(UpgradedSocket::new(to, wants_drained)));
        entry.input.searched = 0;
        entry.since_ms = now_ms;
        // A stream's first bytes may have arrived with its head.
        entry.readiness.is_readable |= entry.carrier.stream().is_some();
        let Some(mut socket) = upgraded::send(guard, head) else { return true };
        if socket.store.service.closes_sockets() {
            planned_close::plan(&mut socket, 0, CloseCode::RESTART);
        }
        socket.settle();
        true
    }
}

impl<'a> SocketWriter<'a> {
    pub(crate) fn new(store: &'a mut Store, ticket: Ticket) -> Self {
        Self { store, ticket }
    }

    /// Whether messages may be sent.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.state().is_some_and(|state| state.state == SocketState::Open)
    }

    /// Whether permessage-deflate was negotiated.
    #[must_use]
    pub fn is_compressed(&self) -> bool {
        let protocol = self.state().map(|state| &state.protocol);
        matches!(protocol, Some(Protocol::WebSocket { is_compressed: true, .. }))
    }

    /// Returns the number of bytes that wait for the client.
    #[must_use]
    pub fn backlog_bytes(&self) -> u64 {
        self.connection().map_or(0, Entry::backlog_bytes)
    }

    /// Sends bytes, which must be complete frames or complete events. Returns false if the connection is not open. A
    /// client that takes too little is cut off, because waiting bytes cost memory.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        if !self.is_open() {
            return false;
        }
        let most = self.store.settings.response_memory_bytes_max as u64;
        let is_full = self.backlog_bytes() > 0 && self.backlog_bytes() + bytes.len() as u64 > most;
        let now_ms = self.store.clock.now_ms;
        let Some(mut socket) = self.socket() else { return false };
        if is_full {
            let limit =
                format!("more than {most} bytes wait for the client, so the socket was closed");
            socket.store.warn("continue a client's socket", io::Error::other(limit));
            socket.finish_upgraded(CloseCode::ABNORMAL);
            return false;
        }
        let is_events = |state: &UpgradedSocket| matches!(state.protocol, Protocol::Events);
        if entry::upgraded(&socket).is_some_and(is_events) {
            socket.since_ms = now_ms;
        }
        if let Some(mut socket) = upgraded::send(socket, bytes) {
            socket.settle();
        }
        self.is_open()
    }

    /// Closes the connection, with a code and a reason for the client.
    pub fn close(&mut self, code: CloseCode, reason: &str) {
        let Some(mut socket) = self.socket() else { return };
        let Some(state) = entry::upgraded_mut(&mut socket) else { return };
        if state.state != SocketState::Open {
            return;
        }
        let last = match state.protocol {
            Protocol::WebSocket { .. } => {
                state.state = SocketState::Closing;
                websocket::close(code, reason)
            }
            Protocol::Events => {
                state.state = SocketState::Flushing(code);
                Vec::new()
            }
        };
        if let Some(mut socket) = upgraded::send(socket, &last) {
            socket.settle();
        }
    }

    /// Reports that the owner is done with an event, so that the next event may follow. Returns true if the thread that
    /// waits for events has work: a turn, or an earlier deadline.
    pub fn done(&mut self) -> bool {
        let Some(mut socket) = self.socket() else { return false };
        let Some(state) = entry::upgraded_mut(&mut socket) else { return false };
        state.is_busy = false;
        let announced = state.planned_close.take_announced();
        if let Some(code) = announced {
            self.close(code, "");
        }
        if let Some(mut socket) = self.socket() {
            socket.settle();
        }
        announced.is_some() || self.connection().is_some_and(Entry::has_work)
    }

    /// Returns the connection, as long as it belongs to the ticket.
    fn socket(&mut self) -> Option<EntryMut<'_>> {
        self.store
            .find(self.ticket.connection)
            .filter(|socket| socket.request == self.ticket.request)
    }

    fn connection(&self) -> Option<&Entry> {
        let connection = self.store.slab.get(self.ticket.connection);
        connection.filter(|connection| connection.request == self.ticket.request)
    }

    fn state(&self) -> Option<&UpgradedSocket> {
        self.connection().and_then(entry::upgraded)
    }
}
