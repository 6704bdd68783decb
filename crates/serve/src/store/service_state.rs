//! The states of a server's service, and the modes of its shutdown.

/// The way in which an engine treats new and existing connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServiceState {
    /// The engine accepts and keeps connections.
    Serving,
    /// The shutdown is announced: health checks fail, and each connection is closed after a response. New connections
    /// are still accepted.
    Announced,
    /// The engine accepts nothing, and hands its connections over to other workers between two requests.
    HandingOver,
    /// The engine accepts nothing and begins no request: the next program takes its connections over.
    Suspended,
    /// The engine accepts nothing, and closes each connection after a response.
    Draining,
}

/// The way in which an engine shuts down: see [`Engine::shut_down`](crate::Engine::shut_down).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShutdownMode {
    /// Announces the shutdown: health checks get 503, and each connection is closed after its response. New connections
    /// are still accepted, so that a load balancer has time to choose other servers.
    Announce,
    /// Hands the connections over to other workers, of the same server or of the next one. A single engine suspends the
    /// connections between two requests, for [`inheritance`](crate::inheritance).
    HandOver,
    /// Accepts the connections that already wait and then no more, and closes idle connections. The others are closed
    /// after their responses.
    Drain {
        /// Whether the listeners are closed in every process that has them. The system then refuses new connections,
        /// which otherwise would wait in vain.
        closes_for_all: bool,
    },
    /// Ends the service immediately: requests without a response yet get 503.
    Abort,
}

impl ServiceState {
    /// Whether the engine accepts new connections.
    pub(crate) fn accepts(self) -> bool {
        matches!(self, Self::Serving | Self::Announced)
    }

    /// Whether other workers or the next program take over the connections.
    pub(crate) fn hands_over(self) -> bool {
        matches!(self, Self::HandingOver | Self::Suspended)
    }

    /// Whether the engine closes upgraded connections.
    pub(crate) fn closes_sockets(self) -> bool {
        !self.accepts()
    }

    /// Whether a connection is closed after its response.
    pub(crate) fn closes_after_response(self) -> bool {
        matches!(self, Self::Announced | Self::Draining)
    }
}
