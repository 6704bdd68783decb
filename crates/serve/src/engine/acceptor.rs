//! Where new connections come from.

use std::io;
use std::os::fd::AsFd;

use rustix::io::Errno;

use crate::Error;
use crate::engine::migration::Migration;
use crate::entry::Connection;
use crate::events::token::{LISTENERS_MAX, Token};
use crate::listen::listener::Listener;
use crate::store::Connections;
use crate::workers::WorkerHandle;

/// Connections accepted before the others get their turns again.
const ACCEPTS_MAX: usize = 64;

/// How long nothing is accepted after the system has refused a connection for lack of resources.
const PAUSE_MS: u64 = 100;

/// The listeners, and whether they are watched now.
#[derive(Debug)]
pub(crate) struct Acceptor {
    listeners: Vec<Listener>,
    is_listening: bool,
    paused_until_ms: u64,
    /// Connections of faulty peers, and when each begins.
    waiting: Vec<(u64, Connection)>,
}

impl Acceptor {
    pub(crate) fn new(listeners: Vec<Listener>) -> Self {
        Self { listeners, is_listening: false, paused_until_ms: 0, waiting: Vec::new() }
    }

    /// Watches the listeners.
    ///
    /// # Errors
    /// No descriptors are left.
    pub(crate) fn listen(&mut self, connections: &Connections) -> Result<(), Error> {
        for (index, listener) in self.listeners.iter().enumerate().take(LISTENERS_MAX) {
            connections
                .poller
                .add_listener(listener.as_fd(), Token::Listener(index).to_word())
                .map_err(|errno| Error::listen(listener, errno))?;
        }
        self.is_listening = true;
        Ok(())
    }

    /// Watches the listeners again, once there is room and no pause any more.
    pub(crate) fn listen_again(&mut self, connections: &Connections) {
        let may_listen = connections.stage.accepts()
            && connections.clock.now_ms >= self.paused_until_ms
            && connections.count() + self.waiting.len() < connections.settings.connections_max;
        if !self.is_listening && may_listen {
            // Without descriptors it is tried again after the next pause.
            let _ = self.listen(connections);
        }
    }

    /// When there may be something to do, in milliseconds from now: a pause is over, or a connection begins.
    pub(crate) fn wait_ms(&self, now_ms: u64) -> Option<u64> {
        let pause_ms = (self.paused_until_ms > now_ms).then_some(PAUSE_MS);
        let begin_ms = self.waiting.iter().map(|(begin_ms, _)| begin_ms.saturating_sub(now_ms));
        pause_ms.into_iter().chain(begin_ms).min()
    }

    /// Begins some of the connections that wait at a listener.
    pub(crate) fn accept(
        &mut self,
        index: usize,
        connections: &mut Connections,
        mut migration: Option<&mut Migration>,
    ) {
        for _ in 0..ACCEPTS_MAX {
            let worker = migration.as_ref().map(|migration| &migration.worker);
            let coming = worker.map_or(0, WorkerHandle::connections);
            let count = connections.count().max(coming) + self.waiting.len();
            if count >= connections.settings.connections_max {
                let crowd = format!("{count} are open, as many as may be, and the next ones wait");
                connections.warn("accept a connection", io::Error::other(crowd));
                return self.unlisten(connections);
            }
            match self.next(index, connections) {
                Ok(None) => return,
                Ok(Some(connection)) => {
                    self.admit(connection, connections, migration.as_deref_mut())
                }
                // Another process has closed it for all: this one is about to be told to stop, too.
                Err(Errno::INVAL) => {
                    self.unlisten(connections);
                    return self.listeners.clear();
                }
                Err(errno) => {
                    connections.warn("accept a connection", errno);
                    self.paused_until_ms = connections.clock.now_ms + PAUSE_MS;
                    return self.unlisten(connections);
                }
            }
        }
    }

    /// Begins a connection, at once or in time; or closes it, if too many of its peer wait.
    fn admit(
        &mut self,
        connection: Connection,
        connections: &mut Connections,
        migration: Option<&mut Migration>,
    ) {
        if connections.settings.is_for_metrics(connection.listener.into()) {
            return begin(connection, connections, migration);
        }
        let (peer, now_ms) = (connection.peer, connections.clock.now_ms);
        match connections.faulty_peers.begin_ms(peer, now_ms) {
            Some(begin_ms) if begin_ms > now_ms => self.waiting.push((begin_ms, connection)),
            Some(_) => begin(connection, connections, migration),
            None => {
                let why =
                    format!("{peer} has sent what ended others, and too many of its own wait");
                connections.warn("accept a connection", io::Error::other(why));
            }
        }
    }

    /// Begins the connections of faulty peers whose time has come.
    pub(crate) fn begin_due(
        &mut self,
        connections: &mut Connections,
        mut migration: Option<&mut Migration>,
    ) {
        let now_ms = connections.clock.now_ms;
        if self.waiting.iter().all(|(begin_ms, _)| *begin_ms > now_ms) {
            return;
        }
        let all = std::mem::take(&mut self.waiting).into_iter();
        let (due, waiting): (Vec<_>, _) = all.partition(|(begin_ms, _)| *begin_ms <= now_ms);
        self.waiting = waiting;
        for (_, connection) in due {
            begin(connection, connections, migration.as_deref_mut());
        }
    }

    /// Begins every connection that waits at the listeners, here and not in another worker, and closes them: for every
    /// process that has them, if `closes_for_all`.
    pub(crate) fn close(&mut self, connections: &mut Connections, closes_for_all: bool) {
        self.unlisten(connections);
        self.begin_last(connections);
        for index in 0..self.listeners.len() {
            self.accept_last(index, connections);
            if closes_for_all {
                self.listeners[index].close_for_all();
            }
        }
        self.listeners.clear();
    }

    /// Leaves the connections that wait to another program.
    pub(crate) fn abandon(&mut self, connections: &mut Connections) {
        self.unlisten(connections);
        self.begin_last(connections);
        self.listeners.clear();
    }

    /// Begins the connections of faulty peers here, before their time.
    fn begin_last(&mut self, connections: &mut Connections) {
        for (_, connection) in self.waiting.drain(..) {
            begin(connection, connections, None);
        }
    }

    fn accept_last(&mut self, index: usize, connections: &mut Connections) {
        while connections.count() < connections.settings.connections_max {
            let Ok(Some(connection)) = self.next(index, connections) else { return };
            if let Err(errno) = connections.open(connection) {
                return connections.warn("accept a connection", errno);
            }
        }
    }

    /// The next connection that waits at a listener.
    fn next(&self, index: usize, connections: &Connections) -> Result<Option<Connection>, Errno> {
        let Some(listener) = self.listeners.get(index) else { return Ok(None) };
        let Some((socket, peer)) = listener.accept()? else { return Ok(None) };
        let settings = &connections.settings;
        let has_head =
            !settings.is_for_metrics(index) && settings.client_source.proxy_version().is_some();
        let index = u16::try_from(index).unwrap_or(0);
        let mut connection = Connection::new(socket, peer, index, connections.clock.now_ms);
        connection.is_trusted = settings.trust.includes(peer);
        connection.awaits_proxy_head = has_head && connection.is_trusted;
        Ok(Some(connection))
    }

    fn unlisten(&mut self, connections: &Connections) {
        for listener in &self.listeners {
            connections.poller.remove(listener.as_fd());
        }
        self.is_listening = false;
    }

    #[cfg(test)]
    pub(crate) fn listeners(&self) -> &[Listener] {
        &self.listeners
    }
}

fn begin(connection: Connection, connections: &mut Connections, migration: Option<&mut Migration>) {
    match migration {
        Some(migration) => migration.place(connection, connections),
        // A connection that cannot be watched is closed again.
        None => drop(connections.open(connection)),
    }
}
