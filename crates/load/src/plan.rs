//! What a run does: which server it asks for what, with which clients, and for how long.

use std::time::Duration;

use thruway_tls::ClientContext;

use crate::schedule::{Arrivals, Schedule, open_loop};
use crate::{Address, Request};

/// A run, described.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Where connections go to.
    pub address: Address,
    /// With what TLS is spoken, if it is. What it offers is the protocol's.
    pub tls: Option<ClientContext>,
    /// What is spoken on the connections.
    pub protocol: Protocol,
    /// What is asked: at least one URL.
    pub urls: Vec<WeightedRequest>,
    /// The clients. Those of a class behave alike and are compared with one another.
    pub classes: Vec<Class>,
    /// When the run ends, if nothing ends it before.
    pub duration: Option<Duration>,
    /// After how many answered or failed requests the run ends.
    pub requests: Option<u64>,
    /// When a pending request is given up, and its connection closed.
    pub timeout: Duration,
}

/// What is spoken on the connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2, with prior knowledge or by ALPN. What a client has pending, it has on as many streams.
    Http2,
    /// Messages over WebSocket; the request is the handshake.
    WebSocket(Messages),
}

impl Protocol {
    /// Its name in ALPN.
    #[must_use]
    pub fn alpn(&self) -> &'static [u8] {
        match self {
            Self::Http2 => b"h2",
            Self::Http1 | Self::WebSocket(_) => b"http/1.1",
        }
    }
}

/// What is said over WebSocket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Messages {
    /// The text of a message. In a broadcast, `{id}` in it becomes the message's number.
    pub message: Vec<u8>,
    /// What each client says first.
    pub subscribe: Option<Vec<u8>>,
    /// What is in the message by which the server says that a client is subscribed.
    pub confirmed: Option<Vec<u8>>,
    /// Whether the first client speaks and all clients are to hear it. Without it, each waits for its own message.
    pub is_broadcast: bool,
}

/// One of the URLs that are asked, and how often beside the others.
#[derive(Debug, Clone)]
pub struct WeightedRequest {
    /// What is sent.
    pub request: Request,
    /// Of every `sum of all weights` requests of a client, this many are for this URL; at least 1.
    pub weight: u32,
}

/// Clients that behave alike.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Class {
    /// What they do.
    pub kind: ClientKind,
    /// How many there are, each with a connection of its own.
    pub connections: u32,
    /// How many requests a greedy, pipelined or scheduled client may have pending at a time; at least 1. With HTTP/2
    /// they are streams.
    pub depth: u32,
    /// The index in the plan's URLs of the only URL that they ask; without it they ask all of them by weight.
    pub url: Option<usize>,
}

/// How a client behaves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ClientKind {
    /// Always has as many requests pending as it may.
    Greedy,
    /// The same, and it may have several: its own class beside greedy ones.
    Pipelined,
    /// Asks, waits for the response, rests.
    Polite {
        /// The rest after each response.
        pause: Duration,
    },
    /// Asks at a rate that does not wait for responses (open loop).
    Scheduled {
        /// Requests a second, of the whole class.
        rate: f64,
        /// How they are spread over a second.
        arrivals: Arrivals,
    },
    /// Sends its requests a byte at a time: a slow client.
    Trickle {
        /// The time between two bytes.
        gap: Duration,
    },
    /// Takes its responses a few bytes at a time: another slow client.
    SlowRead {
        /// The time between two reads.
        gap: Duration,
        /// How much it reads at a time, at most.
        bytes: usize,
    },
    /// Asks once and keeps its connection open.
    Idle,
}

impl Class {
    /// Clients that ask all URLs, one request at a time.
    #[must_use]
    pub fn new(kind: ClientKind, connections: u32) -> Self {
        Self { kind, connections, depth: 1, url: None }
    }

    /// How many requests a client may have pending: more than one only where its kind knows what to do with them.
    pub(crate) fn depth(&self) -> usize {
        match self.kind {
            ClientKind::Greedy | ClientKind::Pipelined | ClientKind::Scheduled { .. } => {
                self.depth.max(1) as usize
            }
            _ => 1,
        }
    }

    /// The rule of the `number`th client.
    pub(crate) fn schedule(&self, number: u32) -> Schedule {
        match self.kind {
            ClientKind::Polite { pause } => Schedule::After { pause_ns: nanoseconds(pause) },
            ClientKind::Scheduled { rate, arrivals } => {
                open_loop(rate, arrivals, self.connections, number)
            }
            ClientKind::Idle => Schedule::Once,
            _ => Schedule::Always,
        }
    }
}

impl ClientKind {
    /// The kind's name, as it stands in a mix and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Greedy => "greedy",
            Self::Pipelined => "pipelined",
            Self::Polite { .. } => "polite",
            Self::Scheduled { .. } => "scheduled",
            Self::Trickle { .. } => "trickle",
            Self::SlowRead { .. } => "slow-read",
            Self::Idle => "idle",
        }
    }

    /// Whether clients of this kind have a claim to equal shares.
    #[must_use]
    pub fn is_judged(self) -> bool {
        !matches!(self, Self::Trickle { .. } | Self::SlowRead { .. } | Self::Idle)
    }
}

/// A time as the clients count it, cut to the longest that they can count.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
