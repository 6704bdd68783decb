//! What the owner of an engine does with an upgraded connection.

use std::io;

use thruway_websocket::{self as websocket, CloseCode};

use crate::entry::socket_state::{Protocol, SocketStage, UpgradeTo, Upgraded};
use crate::entry::ticket::Ticket;
use crate::entry::{self, Connection, Phase};
use crate::exchange::counting;
use crate::exchange::response::ResponseWriter;
use crate::exchange::upgraded;
use crate::exchange::upgraded::farewell;
use crate::store::{Connections, finish_upgraded};

/// One upgraded connection, as long as it is open.
#[derive(Debug)]
pub struct SocketWriter<'a> {
    connections: &'a mut Connections,
    ticket: Ticket,
}

impl ResponseWriter<'_> {
    /// Sends a head and keeps the connection, which speaks another protocol behind it. False if there is no request any
    /// more.
    pub fn upgrade(&mut self, head: &[u8], to: UpgradeTo, wants_drained: bool) -> bool {
        let id = self.ticket.connection;
        let now_ms = self.connections.clock.now_ms;
        let Some(connection) = self.connections.connection_of(self.ticket) else { return false };
        let is_websocket = matches!(to, UpgradeTo::WebSocket { .. });
        let stream = connection.carrier.stream();
        let may = stream.is_none_or(|link| link.may_become(is_websocket));
        if !matches!(connection.phase, Phase::Handling) || !may {
            return false;
        }
        counting::note_status(connection, head);
        counting::end(self.connections, id);
        let Some(connection) = self.connections.connection_of(self.ticket) else { return false };
        connection.phase = Phase::Upgraded(Box::new(Upgraded::new(to, wants_drained)));
        connection.seen = 0;
        connection.since_ms = now_ms;
        // A stream may have brought something with its head.
        connection.is_readable |= connection.carrier.stream().is_some();
        upgraded::send(self.connections, id, head);
        if self.connections.stage.ends_sockets() {
            farewell::plan(self.connections, id, 0, CloseCode::RESTART);
        }
        self.connections.settle(id);
        true
    }
}

impl<'a> SocketWriter<'a> {
    pub(crate) fn new(connections: &'a mut Connections, ticket: Ticket) -> Self {
        Self { connections, ticket }
    }

    /// Whether messages may be sent.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.state().is_some_and(|state| state.stage == SocketStage::Open)
    }

    /// Whether permessage-deflate is agreed on.
    #[must_use]
    pub fn is_compressed(&self) -> bool {
        let protocol = self.state().map(|state| &state.protocol);
        matches!(protocol, Some(Protocol::WebSocket { is_compressed: true, .. }))
    }

    /// Bytes that wait for the client to take them.
    #[must_use]
    pub fn backlog_bytes(&self) -> u64 {
        self.connection().map_or(0, Connection::backlog_bytes)
    }

    /// Sends bytes: whole frames, or whole events. False if it is not open. A client that takes too little is cut off,
    /// because what waits for it costs memory.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        if !self.is_open() {
            return false;
        }
        let id = self.ticket.connection;
        let most = self.connections.settings.response_memory_bytes_max as u64;
        if self.backlog_bytes() > 0 && self.backlog_bytes() + bytes.len() as u64 > most {
            let limit = format!("more than {most} bytes wait, and it was closed");
            self.connections.warn("go on with a client's socket", io::Error::other(limit));
            finish_upgraded(self.connections, id, CloseCode::ABNORMAL);
            return false;
        }
        if let Some(connection) = self.connections.slab.get_mut(id)
            && entry::upgraded(connection)
                .is_some_and(|state| matches!(state.protocol, Protocol::Events))
        {
            connection.since_ms = self.connections.clock.now_ms;
        }
        upgraded::send(self.connections, id, bytes);
        self.connections.settle(id);
        self.is_open()
    }

    /// Closes it, with a code and a reason for the client.
    pub fn close(&mut self, code: CloseCode, reason: &str) {
        let id = self.ticket.connection;
        let Some(connection) = self.connections.slab.get_mut(id) else { return };
        if connection.request != self.ticket.request {
            return;
        }
        let Some(state) = entry::upgraded_mut(connection) else { return };
        if state.stage != SocketStage::Open {
            return;
        }
        let last = match state.protocol {
            Protocol::WebSocket { .. } => {
                state.stage = SocketStage::Closing;
                websocket::close(code, reason)
            }
            Protocol::Events => {
                state.stage = SocketStage::Leaving(code);
                Vec::new()
            }
        };
        upgraded::send(self.connections, id, &last);
        self.connections.settle(id);
    }

    /// The owner is done with an event: there may be another one. True if there is something to do for the thread that
    /// waits for events: a turn, or an earlier deadline.
    pub fn done(&mut self) -> bool {
        let id = self.ticket.connection;
        let Some(connection) = self.connections.slab.get_mut(id) else { return false };
        if connection.request != self.ticket.request {
            return false;
        }
        let Some(state) = entry::upgraded_mut(connection) else { return false };
        state.is_busy = false;
        let told = state.farewell.take_told();
        if let Some(code) = told {
            self.close(code, "");
        }
        self.connections.settle(id);
        told.is_some() || self.connection().is_some_and(Connection::has_work)
    }

    fn connection(&self) -> Option<&Connection> {
        let connection = self.connections.slab.get(self.ticket.connection);
        connection.filter(|connection| connection.request == self.ticket.request)
    }

    fn state(&self) -> Option<&Upgraded> {
        self.connection().and_then(entry::upgraded)
    }
}
