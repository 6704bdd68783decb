//! Accepts new connections.

use std::io;
use std::os::fd::AsFd;

use rustix::io::Errno;

use crate::Error;
use crate::engine::migration::Migration;
use crate::entry::Entry;
use crate::events::token::{LISTENERS_MAX, Token};
use crate::listen::listener::Listener;
use crate::store::Store;

/// The number of connections accepted before other connections get turns again.
const ACCEPTS_MAX: usize = 64;

/// The pause in accepting after the system has refused a connection for lack of resources.
const PAUSE_MS: u64 = 100;

/// The listeners, and whether the poller watches them.
#[derive(Debug)]
pub(crate) struct Acceptor {
    listeners: Vec<Listener>,
    is_listening: bool,
    paused_until_ms: u64,
    /// Connections of faulty peers, each with the time at which the connection begins.
    waiting: Vec<(u64, Entry)>,
}

impl Acceptor {
    pub(crate) fn new(listeners: Vec<Listener>) -> Self {
        Self { listeners, is_listening: false, paused_until_ms: 0, waiting: Vec::new() }
    }

    /// Watches the listeners.
    ///
    /// # Errors
    /// No descriptors are left.
    pub(crate) fn listen(&mut self, store: &Store) -> Result<(), Error> {
        for (index, listener) in self.listeners.iter().enumerate().take(LISTENERS_MAX) {
            store
                .poller
                .add_listener(listener.as_fd(), Token::Listener(index).to_word())
                .map_err(|errno| Error::listen(listener, errno))?;
        }
        self.is_listening = true;
        Ok(())
    }

    /// Watches the listeners again, once the pause is over and there is room for connections.
    pub(crate) fn listen_again(&mut self, store: &Store) {
        let may_listen = store.service.accepts()
            && store.clock.now_ms >= self.paused_until_ms
            && store.count() + self.waiting.len() < store.settings.connections_max;
        if !self.is_listening && may_listen {
            // Without descriptors, the next call after a pause tries again.
            let _ = self.listen(store);
        }
    }

    /// Returns the number of milliseconds until the pause is over or a waiting connection begins.
    pub(crate) fn wait_ms(&self, now_ms: u64) -> Option<u64> {
        let pause_ms = (self.paused_until_ms > now_ms).then_some(PAUSE_MS);
        let begin_ms = self.waiting.iter().map(|(begin_ms, _)| begin_ms.saturating_sub(now_ms));
        pause_ms.into_iter().chain(begin_ms).min()
    }

    /// Accepts some of the connections that wait at a listener.
    pub(crate) fn accept(
        &mut self,
        index: usize,
        store: &mut Store,
        mut migration: Option<&mut Migration>,
    ) {
        for _ in 0..ACCEPTS_MAX {
            let count = match migration.as_deref_mut() {
                Some(migration) => migration.count(store),
                None => store.count(),
            };
            let count = count + self.waiting.len();
            if count >= store.settings.connections_max {
                let crowd = format!("{count} are open, as many as may be, and the next ones wait");
                store.warn("accept a connection", io::Error::other(crowd));
                return self.unlisten(store);
            }
            match self.next(index, store) {
                Ok(None) => return,
                Ok(Some(connection)) => self.admit(connection, store, migration.as_deref_mut()),
                // Another process has closed the listener for all processes. This process is about to be stopped as
                // well.
                Err(Errno::INVAL) => {
                    self.unlisten(store);
                    return self.listeners.clear();
                }
                Err(errno) => {
                    store.warn("accept a connection", errno);
                    self.paused_until_ms = store.clock.now_ms + PAUSE_MS;
                    return self.unlisten(store);
                }
            }
        }
    }

    /// Begins a connection, either immediately or at the time set for its faulty peer. Closes the connection if too
    /// many connections of the peer wait.
    fn admit(&mut self, connection: Entry, store: &mut Store, migration: Option<&mut Migration>) {
        if store.settings.is_for_metrics(connection.listener.into()) {
            return begin(connection, store, migration);
        }
        let (peer, now_ms) = (connection.peer, store.clock.now_ms);
        match store.faulty_peers.begin_ms(peer, now_ms) {
            Some(begin_ms) if begin_ms > now_ms => self.waiting.push((begin_ms, connection)),
            Some(_) => begin(connection, store, migration),
            None => {
                let why = format!(
                    "{peer}: too many connections from its address wait after protocol errors"
                );
                store.warn("accept a connection", io::Error::other(why));
            }
        }
    }

    /// Begins the connections of faulty peers whose time has come.
    pub(crate) fn begin_due(&mut self, store: &mut Store, mut migration: Option<&mut Migration>) {
        let now_ms = store.clock.now_ms;
        if self.waiting.iter().all(|(begin_ms, _)| *begin_ms > now_ms) {
            return;
        }
        let all = std::mem::take(&mut self.waiting).into_iter();
        let (due, waiting): (Vec<_>, _) = all.partition(|(begin_ms, _)| *begin_ms <= now_ms);
        self.waiting = waiting;
        for (_, connection) in due {
            begin(connection, store, migration.as_deref_mut());
        }
    }

    /// Accepts every connection that waits at the listeners, without sending any to other workers, and closes the
    /// listeners. If `closes_for_all` is set, every process that has the listeners loses them.
    pub(crate) fn close(&mut self, store: &mut Store, closes_for_all: bool) {
        self.unlisten(store);
        self.begin_last(store);
        for index in 0..self.listeners.len() {
            self.accept_last(index, store);
            if closes_for_all {
                self.listeners[index].close_for_all();
            }
        }
        self.listeners.clear();
    }

    /// Stops listening, and leaves the connections that wait at the listeners to another program.
    pub(crate) fn abandon(&mut self, store: &mut Store) {
        self.unlisten(store);
        self.begin_last(store);
        self.listeners.clear();
    }

    /// Begins the connections of faulty peers in this worker, before their time.
    fn begin_last(&mut self, store: &mut Store) {
        for (_, connection) in self.waiting.drain(..) {
            begin(connection, store, None);
        }
    }

    fn accept_last(&mut self, index: usize, store: &mut Store) {
        while store.count() < store.settings.connections_max {
            let Ok(Some(connection)) = self.next(index, store) else { return };
            if let Err(errno) = store.open(connection) {
                return store.warn("accept a connection", errno);
            }
        }
    }

    /// Accepts the next connection that waits at a listener.
    fn next(&self, index: usize, store: &Store) -> Result<Option<Entry>, Errno> {
        let Some(listener) = self.listeners.get(index) else { return Ok(None) };
        let Some((socket, peer)) = listener.accept()? else { return Ok(None) };
        let settings = &store.settings;
        let has_head =
            !settings.is_for_metrics(index) && settings.client_source.proxy_version().is_some();
        let index = u16::try_from(index).unwrap_or(0);
        let mut connection = Entry::new(socket, peer, index, store.clock.now_ms);
        connection.is_trusted = settings.trust.includes(peer);
        connection.awaits_proxy_head = has_head && connection.is_trusted;
        Ok(Some(connection))
    }

    fn unlisten(&mut self, store: &Store) {
        for listener in &self.listeners {
            store.poller.remove(listener.as_fd());
        }
        self.is_listening = false;
    }

    #[cfg(test)]
    pub(crate) fn listeners(&self) -> &[Listener] {
        &self.listeners
    }
}

/// Begins a connection in this worker, or in the worker with the least work. A connection that cannot be watched is
/// closed.
fn begin(connection: Entry, store: &mut Store, migration: Option<&mut Migration>) {
    if let Some(migration) = migration {
        migration.place(connection, store);
    } else if let Err(errno) = store.open(connection) {
        store.warn("watch a connection", errno);
    }
}
