//! Whether a server serves, and how its service ends.

/// How an engine treats connections that come, and those that it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServiceState {
    /// The engine accepts and keeps connections.
    Serving,
    /// The shutdown is announced: health checks fail, and each connection is closed after a response. New connections
    /// are still accepted.
    Announced,
    /// The engine accepts nothing, and hands its connections over to other workers between two requests.
    HandingOver,
    /// The engine accepts nothing and begins no request: the next program will go on with its connections.
    Suspended,
    /// The engine accepts nothing, and closes each connection after a response.
    Draining,
}

/// How an engine shuts down: see [`Engine::shut_down`](crate::Engine::shut_down).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShutdownMode {
    /// Soon: health checks get 503, and each connection is closed after its response. New connections are still
    /// accepted, so that a balancer has time to look elsewhere.
    Announce,
    /// Other workers go on with the connections: of the same server, or of the next one. A single engine suspends them
    /// between two requests, for [`inheritance`](crate::inheritance).
    HandOver,
    /// The engine accepts the connections that wait and then no more, and closes idle ones. The others are closed after
    /// their responses.
    Drain {
        /// Whether the listeners are closed in every process that has them: the system then refuses connections, which
        /// otherwise would wait in vain.
        closes_for_all: bool,
    },
    /// At once: requests without a response yet get 503.
    Abort,
}

impl ServiceState {
    /// Whether new connections are welcome.
    pub(crate) fn accepts(self) -> bool {
        matches!(self, Self::Serving | Self::Announced)
    }

    /// Whether others go on with the connections.
    pub(crate) fn hands_over(self) -> bool {
        matches!(self, Self::HandingOver | Self::Suspended)
    }

    /// Whether upgraded connections are closed.
    pub(crate) fn closes_sockets(self) -> bool {
        !self.accepts()
    }

    /// Whether a connection is closed after its response.
    pub(crate) fn closes_after_response(self) -> bool {
        matches!(self, Self::Announced | Self::Draining)
    }
}
