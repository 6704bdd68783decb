//! How far a server is on its way from the first connection to the last.

/// What an engine does about connections that come, and about those that it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It accepts and keeps them.
    Serving,
    /// It accepts them still, and parts with each after a response; health checks fail.
    Leaving,
    /// It accepts none, and hands its own to other workers between two requests.
    Retiring,
    /// It accepts none, and begins no request: another process will go on with its connections.
    Holding,
    /// It accepts none, and parts with each after a response.
    Draining,
}

/// How an engine's service ends: see [`Engine::end`](crate::Engine::end).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Soon: health checks are told 503, and each response parts with its connection. New ones are still accepted, so
    /// that a balancer has time to look elsewhere.
    Announced,
    /// Other workers go on with the connections: of the same group, or of the next server. Alone, the engine keeps
    /// them between two requests for [`inheritance`](crate::engine::inheritance).
    Retired,
    /// It takes the connections that wait and then no more, and hangs up on idle ones. The others end after their
    /// responses.
    Drained {
        /// Whether the listeners are closed in every process that has them: the system then refuses connections, which
        /// otherwise would wait in vain.
        closes_for_all: bool,
    },
    /// At once: requests without a response yet get 503.
    GivenUp,
}

impl Stage {
    /// Whether new connections are welcome.
    pub(crate) fn accepts(self) -> bool {
        matches!(self, Self::Serving | Self::Leaving)
    }

    /// Whether others go on with its connections.
    pub(crate) fn passes_on(self) -> bool {
        matches!(self, Self::Retiring | Self::Holding)
    }

    /// Whether upgraded connections end.
    pub(crate) fn ends_sockets(self) -> bool {
        !self.accepts()
    }

    /// Whether a connection ends after its response.
    pub(crate) fn parts(self) -> bool {
        matches!(self, Self::Leaving | Self::Draining)
    }
}
