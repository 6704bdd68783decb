//! The state of an upgraded connection, and the events for its owner.

use thruway_websocket::{CloseCode, Decoder, Message};

/// How long the client may take to finish the close that the server has begun.
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
    /// The connection has opened.
    Opened,
    /// The client has sent a message.
    Message(Message),
    /// The client has taken all the output that waited.
    Drained,
    /// The server is about to close the connection.
    Shutdown,
    /// The connection has ended; no event follows.
    Ended(CloseCode),
}

/// The state of an upgraded connection.
#[derive(Debug)]
pub(crate) struct UpgradedSocket {
    pub(crate) protocol: Protocol,
    pub(crate) state: SocketState,
    /// Whether the owner has yet to hear of the connection.
    is_new: bool,
    /// Whether the owner is handling an event of the connection.
    pub(crate) is_busy: bool,
    /// A message that waits for the owner.
    pub(crate) message: Option<Message>,
    /// Whether output has had to wait for the client.
    pub(crate) has_waited: bool,
    /// Whether the owner wants an event when no output waits any more.
    pub(crate) wants_drained: bool,
    pub(crate) is_drained: bool,
    /// Whether a ping was sent and no input has arrived since.
    pub(crate) is_pinged: bool,
    pub(crate) planned_close: PlannedClose,
}

/// The protocol and the state of its decoder.
#[derive(Debug)]
pub(crate) enum Protocol {
    WebSocket { decoder: Decoder, is_compressed: bool },
    Events,
}

/// The stage of an upgraded connection's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SocketState {
    Open,
    /// The server has sent its close frame and waits for the client's.
    Closing,
    /// The last frames are written; the socket closes once they are sent.
    Flushing(CloseCode),
    /// The client broke a rule and was sent a close frame; further input is discarded.
    Broken(CloseCode),
    /// The socket is closed, and the owner has yet to hear of the end.
    Closed(CloseCode),
    /// The owner has heard of the end.
    Reported,
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

    /// Whether the socket is closed already.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, SocketState::Closed(_) | SocketState::Reported)
    }

    /// Whether an event waits for the owner and the owner is free.
    pub(crate) fn has_event(&self) -> bool {
        let is_due = self.is_drained || self.planned_close.is_due();
        let has_ended = matches!(self.state, SocketState::Closed(_));
        !self.is_busy && (self.is_new || self.message.is_some() || is_due || has_ended)
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
            self.state = SocketState::Reported;
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

    /// The next deadline of a connection whose last input came at `since_ms`: for the close, for a
    /// ping, or for the planned close.
    pub(crate) fn deadline_ms(&self, since_ms: u64, ping_ms: u64) -> Option<u64> {
        match self.state {
            SocketState::Closed(_) | SocketState::Reported => return None,
            SocketState::Closing | SocketState::Broken(_) => return Some(since_ms + CLOSE_MS),
            SocketState::Open | SocketState::Flushing(_) => {}
        }
        let periods = 1 + u64::from(self.is_pinged);
        let ping = (ping_ms > 0).then(|| since_ms + periods * ping_ms);
        [ping, self.planned_close.planned_ms()].into_iter().flatten().min()
    }
}

/// The close that the server plans for an upgraded connection when it shuts down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlannedClose {
    None,
    /// The close is due at `at_ms`.
    Scheduled {
        at_ms: u64,
        code: CloseCode,
    },
    /// The close is due: its announcement is the owner's next event.
    Due(CloseCode),
    /// The owner knows; the client is sent the code when the owner is done.
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

    /// Marks a scheduled close as due if its time has come, and returns whether it has.
    pub(crate) fn come_due(&mut self, now_ms: u64) -> bool {
        match *self {
            Self::Scheduled { at_ms, code } if at_ms <= now_ms => {
                *self = Self::Due(code);
                true
            }
            _ => false,
        }
    }

    /// Marks a due close as announced, and returns whether it was due.
    pub(crate) fn announce(&mut self) -> bool {
        let Self::Due(code) = *self else { return false };
        *self = Self::Announced(code);
        true
    }

    /// Takes the code for the client, once the close was announced to the owner.
    pub(crate) fn take_announced(&mut self) -> Option<CloseCode> {
        let Self::Announced(code) = *self else { return None };
        *self = Self::None;
        Some(code)
    }
}
