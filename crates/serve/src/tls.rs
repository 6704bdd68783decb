//! Connections that speak TLS: the certificates of their listeners, and their handshakes.
//!
//! A handshake is made of turns, like requests. Two limits keep it from costing others theirs: its time
//! ([`Timeouts::handshake_ms`](crate::Timeouts)), and how many wait for their clients at once
//! ([`Settings::handshakes_max`](crate::Settings)).

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use thruway_tls::{ServerContext, Session, TicketKeys};

use crate::Error;
use crate::closing;
use crate::connection::{Phase, Received};
use crate::connections::Connections;
use crate::listener::Listener;
use crate::slab::ConnectionId;
use crate::tunnel::Tunnels;

/// Between two looks at the files of certificates, which only new connections cause.
const LOOK_MS: u64 = 1_000;

/// What a client is told that speaks plain HTTP where TLS is spoken.
const PLAIN: &str = "this port speaks HTTPS";

/// What an engine knows of TLS.
#[derive(Debug, Default)]
pub(crate) struct Tls {
    /// By the listener's index; none for those that speak plain HTTP. Empty if all do.
    contexts: Vec<Option<ServerContext>>,
    /// Handshakes that have begun, the oldest first. Some may be over.
    begun: VecDeque<ConnectionId>,
    looked_ms: u64,
    /// Connections that applications have taken.
    tunnels: Option<Tunnels>,
}

impl Tls {
    /// Reads the certificates of `listeners`. Session tickets are sealed with `keys`.
    ///
    /// # Errors
    /// A certificate or a key cannot be used.
    pub(crate) fn new(listeners: &[Listener], keys: &Arc<TicketKeys>) -> Result<Self, Error> {
        if listeners.iter().all(|listener| listener.tls().is_none()) {
            return Ok(Self::default());
        }
        let context = |listener: &Listener| {
            let options = listener.tls().map(|options| options.as_ref().clone());
            options.map(|options| ServerContext::new(options, Arc::clone(keys))).transpose()
        };
        let contexts = listeners.iter().map(context).collect::<Result<_, _>>();
        Ok(Self { contexts: contexts.map_err(Error::tls)?, ..Self::default() })
    }

    /// Whether any connection speaks TLS.
    pub(crate) fn is_used(&self) -> bool {
        !self.contexts.is_empty()
    }

    /// Whether the connections of a listener speak TLS.
    pub(crate) fn is_spoken_at(&self, listener: u16) -> bool {
        self.contexts.get(usize::from(listener)).is_some_and(Option::is_some)
    }

    #[cfg(test)]
    pub(crate) fn begun_count(&self) -> usize {
        self.begun.len()
    }

    /// Reads all certificates anew. What cannot be used leaves what was read before in use.
    ///
    /// # Errors
    /// A file cannot be used.
    pub(crate) fn reload(&mut self) -> Result<(), Error> {
        let contexts = self.contexts.iter_mut().flatten();
        contexts.map(|context| context.reload().map_err(Error::tls)).fold(Ok(()), Result::and)
    }

    /// A socket for an application, which takes over a connection that speaks TLS.
    ///
    /// # Errors
    /// The system has no thread or no descriptor left.
    pub(crate) fn tunnel(
        &mut self,
        client: OwnedFd,
        session: Box<Session>,
    ) -> Result<OwnedFd, Error> {
        let tunnels = match self.tunnels.take() {
            Some(tunnels) => tunnels,
            None => Tunnels::start()?,
        };
        let socket = tunnels.add(client, session);
        self.tunnels = Some(tunnels);
        socket.map_err(|errno| Error::system("make a pair of sockets", errno))
    }

    /// Reads the certificates anew whose files have changed.
    fn look(&mut self, now_ms: u64) -> Result<(), thruway_tls::Error> {
        if now_ms < self.looked_ms + LOOK_MS {
            return Ok(());
        }
        self.looked_ms = now_ms;
        let contexts = self.contexts.iter_mut().flatten();
        contexts.map(|context| context.reload_if_changed().map(drop)).fold(Ok(()), Result::and)
    }
}

/// Goes on with a handshake, as far as the client has sent its part.
pub(crate) fn handshake(connections: &mut Connections, id: ConnectionId, inbox: &mut [u8]) {
    if connections.slab.get(id).is_some_and(|connection| connection.tls.is_none()) {
        begin(connections, id);
    }
    let Some(connection) = connections.slab.get_mut(id) else { return };
    let received = connection.receive(inbox);
    if connection.speaks_plain_http() {
        connection.tls = None;
        return closing::hang_up_with(connections, id, 400, PLAIN);
    }
    if received == Received::Ended {
        return drop(connections.close(id));
    }
    if connection.tls.as_ref().is_some_and(|session| !session.is_handshaking()) {
        connection.phase = Phase::Waiting;
        connection.since_ms = connections.clock.now_ms;
        if let Received::Bytes(length) = received {
            connection.keep(&inbox[..length], 0);
        }
    }
}

fn begin(connections: &mut Connections, id: ConnectionId) {
    let now_ms = connections.clock.now_ms;
    if let Err(error) = connections.tls.look(now_ms) {
        connections.warn("take over changed certificates", io::Error::other(error));
    }
    let Some(connection) = connections.slab.get_mut(id) else { return };
    let context = connections.tls.contexts.get(usize::from(connection.listener));
    match context.and_then(Option::as_ref).map(ServerContext::begin) {
        Some(Ok(session)) => connection.tls = Some(Box::new(session)),
        Some(Err(error)) => connections.warn("begin a handshake", io::Error::other(error)),
        None => {}
    }
    connections.tls.begun.push_back(id);
    if connections.tls.begun.len() > connections.settings.handshakes_max {
        end_oldest(connections);
    }
}

/// Forgets the handshakes that are over. If there are still too many, the oldest ends.
fn end_oldest(connections: &mut Connections) {
    let is_unfinished = |id: ConnectionId| {
        let connection = connections.slab.get(id);
        connection.is_some_and(|connection| matches!(connection.phase, Phase::Handshaking))
    };
    connections.tls.begun.retain(|id| is_unfinished(*id));
    let most = connections.settings.handshakes_max;
    if connections.tls.begun.len() > most
        && let Some(oldest) = connections.tls.begun.pop_front()
    {
        let many = format!("{most} others wait for their clients, and it is the oldest");
        connections.warn("finish a handshake", io::Error::other(many));
        connections.close(oldest);
    }
}
