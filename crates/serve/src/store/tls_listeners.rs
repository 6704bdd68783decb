//! The certificates of an engine's listeners.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use thruway_tls::{Automatic, CertificateReport, ServerContext, Session, TicketKeys};

use crate::Error;
use crate::events::slab::EntryId;
use crate::listen::listener::Listener;
use crate::output::tunnel::Tunnels;

/// The minimum time between two checks of the certificate files. Only new handshakes and redirects to HTTPS trigger
/// checks.
const LOOK_MS: u64 = 1_000;

/// The certificates of an engine's listeners, and the handshakes that have begun.
#[derive(Debug, Default)]
pub(crate) struct TlsListeners {
    /// The TLS context of each listener; none for a listener of plain HTTP. Empty if all listeners speak plain HTTP.
    pub(crate) contexts: Vec<Option<ServerContext>>,
    /// The handshakes that have begun, oldest first. The queue may contain handshakes that are over.
    pub(crate) begun: VecDeque<EntryId>,
    looked_ms: u64,
    /// The connections that applications have taken over.
    tunnels: Option<Tunnels>,
}

impl TlsListeners {
    /// Reads the certificates of `listeners`. Session tickets are sealed with `keys`.
    ///
    /// # Errors
    /// A certificate or a key cannot be used.
    pub(crate) fn new(
        listeners: &[Listener],
        keys: &Arc<TicketKeys>,
        has_http2: bool,
    ) -> Result<Self, Error> {
        if listeners.iter().all(|listener| listener.tls().is_none()) {
            return Ok(Self::default());
        }
        let context = |listener: &Listener| {
            let options = listener.tls().map(|options| options.as_ref().clone());
            options
                .map(|options| ServerContext::new(options, Arc::clone(keys), has_http2))
                .transpose()
        };
        let contexts = listeners.iter().map(context).collect::<Result<_, _>>();
        Ok(Self { contexts: contexts.map_err(Error::tls)?, ..Self::default() })
    }

    /// Whether any listener speaks TLS.
    pub(crate) fn is_used(&self) -> bool {
        !self.contexts.is_empty()
    }

    /// Whether the connections of a listener speak TLS.
    pub(crate) fn is_spoken_at(&self, listener: u16) -> bool {
        self.contexts.get(usize::from(listener)).is_some_and(Option::is_some)
    }

    /// Whether any listener has a certificate for this name. Changed files are not read; call [`look`](Self::look)
    /// first.
    pub(crate) fn has_certificate(&self, name: &str) -> bool {
        self.contexts.iter().flatten().any(|context| context.has_certificate(name))
    }

    /// Returns the reports on the certificates that an ACME agent keeps.
    pub(crate) fn reports(&self) -> Vec<CertificateReport> {
        // All listeners of a server share the agent.
        let automatic = self.contexts.iter().flatten().find_map(ServerContext::automatic);
        automatic.map(Automatic::reports).unwrap_or_default()
    }

    /// Reads all certificates again. If a certificate cannot be read, the previous certificate stays in use.
    ///
    /// # Errors
    /// A file cannot be used.
    pub(crate) fn reload(&mut self) -> Result<(), Error> {
        let contexts = self.contexts.iter_mut().flatten();
        contexts.map(|context| context.reload().map_err(Error::tls)).fold(Ok(()), Result::and)
    }

    /// Returns a socket for an application that takes over a TLS connection. The tunnel passes the bytes between both.
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

    /// Reads the certificates whose files have changed, at most once per [`LOOK_MS`].
    pub(crate) fn look(&mut self, now_ms: u64) -> Result<(), thruway_tls::Error> {
        if now_ms < self.looked_ms + LOOK_MS {
            return Ok(());
        }
        self.looked_ms = now_ms;
        let contexts = self.contexts.iter_mut().flatten();
        contexts.map(|context| context.reload_if_changed().map(drop)).fold(Ok(()), Result::and)
    }
}
