//! The state of an upgraded connection, and what its owner is told.

use thruway_websocket::{CloseCode, Decoder, Message};

/// How long a client may take to end a connection that the server has closed.
const CLOSE_MS: u64 = 2_000;

/// The protocol of an upgraded connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpgradeTo {
    /// WebSocket (RFC 6455).
    WebSocket {
        /// Whether permessage-deflate is agreed on, without contexts.
        is_compressed: bool,
    },
    /// Server-sent events: the client sends nothing.
    Events,
}

/// An event on an upgraded connection.
#[derive(Debug, PartialEq, Eq)]
pub enum SocketEvent {
    /// It is there.
    Opened,
    /// The client has sent a message.
    Message(Message),
    /// The client has taken all that has waited for it.
    Drained,
    /// The server is going to close it.
    Shutdown,
    /// It is over: there is no event after this one.
    Ended(CloseCode),
}

/// The state of an upgraded connection.
#[derive(Debug)]
pub(crate) struct UpgradedSocket {
    pub(crate) protocol: Protocol,
    pub(crate) state: SocketState,
    /// The owner knows nothing of it yet.
    is_new: bool,
    /// The owner handles an event of it.
    pub(crate) is_busy: bool,
    /// A message for the owner.
    pub(crate) message: Option<Message>,
    /// What was sent last did not leave at once.
    pub(crate) has_waited: bool,
    /// The owner is told when nothing waits any more, if it wants that.
    pub(crate) wants_drained: bool,
    pub(crate) is_drained: bool,
    /// A ping was sent, and nothing has come since.
    pub(crate) is_pinged: bool,
    pub(crate) planned_close: PlannedClose,
}

/// The protocol, with the state of its decoder.
#[derive(Debug)]
pub(crate) enum Protocol {
    WebSocket { decoder: Decoder, is_compressed: bool },
    Events,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SocketState {
    Open,
    /// The server has sent its close frame, and waits for the client's.
    Closing,
    /// The last frames are written; the socket is closed once they are sent.
    Flushing(CloseCode),
    /// The client broke a rule and got a close frame; what it sends is discarded.
    Broken(CloseCode),
    /// The socket is closed, and its owner has yet to hear of that.
    Closed(CloseCode),
}

impl UpgradedSocket {
    pub(crate) fn new(to: UpgradeTo, wants_drained: bool) -> Self {
        let protocol = match to {
            UpgradeTo::WebSocket { is_compressed } => {
                Protocol::WebSocket { decoder: Decoder::default(), is_compressed }
            }
            UpgradeTo::Events => Protocol::Events,
        };
        Self {
            protocol,
            state: SocketState::Open,
            is_new: true,
            is_busy: false,
            message: None,
            has_waited: false,
            wants_drained,
            is_drained: false,
            is_pinged: false,
            planned_close: PlannedClose::None,
        }
    }

    /// Whether its socket is closed already.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, SocketState::Closed(_))
    }

    /// Whether its owner is to be told something.
    pub(crate) fn has_event(&self) -> bool {
        let is_due = self.is_drained || self.planned_close.is_due();
        !self.is_busy && (self.is_new || self.message.is_some() || is_due || self.is_over())
    }

    /// Takes the next event for the owner.
    pub(crate) fn take_event(&mut self) -> Option<SocketEvent> {
        if self.is_busy {
            return None;
        }
        let event = if std::mem::take(&mut self.is_new) {
            SocketEvent::Opened
        } else if let Some(message) = self.message.take() {
            SocketEvent::Message(message)
        } else if let SocketState::Closed(code) = self.state {
            SocketEvent::Ended(code)
        } else if std::mem::take(&mut self.is_drained) {
            SocketEvent::Drained
        } else if self.planned_close.announce() {
            SocketEvent::Shutdown
        } else {
            return None;
        };
        self.is_busy = true;
        Some(event)
    }

    /// When something is to be done about it, if it was heard of last at `since_ms`.
    pub(crate) fn deadline_ms(&self, since_ms: u64, ping_ms: u64) -> Option<u64> {
        match self.state {
            SocketState::Closed(_) => return None,
            SocketState::Closing | SocketState::Broken(_) => return Some(since_ms + CLOSE_MS),
            SocketState::Open | SocketState::Flushing(_) => {}
        }
        let periods = 1 + u64::from(self.is_pinged);
        let ping = (ping_ms > 0).then(|| since_ms + periods * ping_ms);
        [ping, self.planned_close.planned_ms()].into_iter().flatten().min()
    }
}

/// The end that the server plans for an upgraded connection when it shuts down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlannedClose {
    None,
    /// The close is due at that time.
    Scheduled {
        at_ms: u64,
        code: CloseCode,
    },
    /// The close is due: the owner hears of it next.
    Due(CloseCode),
    /// The owner has heard of it; when the owner is done, the client gets the code.
    Announced(CloseCode),
}

impl PlannedClose {
    pub(crate) fn planned_ms(self) -> Option<u64> {
        match self {
            Self::Scheduled { at_ms, .. } => Some(at_ms),
            _ => None,
        }
    }

    pub(crate) fn is_due(self) -> bool {
        matches!(self, Self::Due(_))
    }

    /// Whether its time has come now.
    pub(crate) fn come_due(&mut self, now_ms: u64) -> bool {
        match *self {
            Self::Scheduled { at_ms, code } if at_ms <= now_ms => {
                *self = Self::Due(code);
                true
            }
            _ => false,
        }
    }

    /// The owner is told, if that is due.
    pub(crate) fn announce(&mut self) -> bool {
        let Self::Due(code) = *self else { return false };
        *self = Self::Announced(code);
        true
    }

    /// The code for the client, once the owner was told.
    pub(crate) fn take_announced(&mut self) -> Option<CloseCode> {
        let Self::Announced(code) = *self else { return None };
        *self = Self::None;
        Some(code)
    }
}
