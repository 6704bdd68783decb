//! The plan of a run: the server, the requests, the clients and the duration.

use std::time::Duration;

use thruway_tls::ClientContext;

use crate::schedule::{Arrivals, Ramp, Schedule, bursts, open_loop};
use crate::{Address, Request};

/// The plan of a run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The address that clients connect to.
    pub address: Address,
    /// The TLS settings; `None` without TLS. The offered protocol is that of `protocol`.
    pub tls: Option<ClientContext>,
    /// The protocol on the connections.
    pub protocol: Protocol,
    /// The requests: at least one URL.
    pub urls: Vec<WeightedRequest>,
    /// The clients. Clients of a class behave alike and are compared with one another.
    pub classes: Vec<Class>,
    /// The longest duration of the run; `None` without limit.
    pub duration: Option<Duration>,
    /// The number of answered or failed requests that ends the run; `None` without limit.
    pub requests: Option<u64>,
    /// The time after which a pending request is given up and its connection closed.
    pub timeout: Duration,
    /// The time before `duration`, in which the clients behave as later, and nothing counts.
    pub warm_up: Duration,
    /// The time in which the load grows: clients start one after another, and the rate of an open loop rises
    /// from 0.
    pub ramp: Duration,
    /// The threads that share the clients; at least 1. A broadcast has one.
    pub threads: u32,
}

/// The protocol on the connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2, with prior knowledge or by ALPN. Each pending request of a client has its own stream.
    Http2,
    /// Messages over WebSocket; the request is the handshake.
    WebSocket(Messages),
}

impl Protocol {
    /// The name in ALPN.
    #[must_use]
    pub fn alpn(&self) -> &'static [u8] {
        match self {
            Self::Http2 => b"h2",
            Self::Http1 | Self::WebSocket(_) => b"http/1.1",
        }
    }
}

/// The messages of WebSocket clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Messages {
    /// The text of a message. In a broadcast, `{id}` is replaced by the message's number.
    pub message: Vec<u8>,
    /// The first message of each client.
    pub subscribe: Option<Vec<u8>>,
    /// Text in the message by which the server confirms the subscription.
    pub confirmed: Option<Vec<u8>>,
    /// Whether the first client sends each message and all clients receive it. Otherwise each client waits
    /// for its own message to come back.
    pub is_broadcast: bool,
}

/// A URL, with its frequency relative to others.
#[derive(Debug, Clone)]
pub struct WeightedRequest {
    /// The request.
    pub request: Request,
    /// Further requests that are sent in turn with `request`, and counted together with it.
    pub others: Vec<Request>,
    /// The number of requests for this URL among each `sum of all weights` requests of a client; at least 1.
    pub weight: u32,
}

/// Clients that behave alike.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Class {
    /// The behaviour.
    pub kind: ClientKind,
    /// The number of clients, each with a connection of its own.
    pub connections: u32,
    /// The most requests that a greedy, pipelined or scheduled client may have pending; at least 1. With
    /// HTTP/2 these are streams.
    pub depth: u32,
    /// The index of the URL, if the class requests only one; `None` to request all URLs by weight.
    pub url: Option<usize>,
    /// The number of requests that a scheduled class sends at the same time; at least 1.
    pub burst: u32,
}

/// The behaviour of a client.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ClientKind {
    /// Always keeps as many requests pending as it may.
    Greedy,
    /// Like `Greedy`, as a class of its own for clients with several pending requests.
    Pipelined,
    /// Sends a request, waits for the response, and pauses.
    Polite {
        /// The pause after each response.
        pause: Duration,
    },
    /// Sends requests at a rate that does not depend on responses (open loop).
    Scheduled {
        /// The rate of the whole class, in requests per second.
        rate: f64,
        /// The distribution of requests over time.
        arrivals: Arrivals,
    },
    /// Sends its requests byte by byte, as a slow client.
    Trickle {
        /// The interval between two bytes.
        gap: Duration,
    },
    /// Reads its responses a few bytes at a time, as a slow client.
    SlowRead {
        /// The interval between two reads.
        gap: Duration,
        /// The most bytes read at once.
        bytes: usize,
    },
    /// Sends a single request and keeps its connection open.
    Idle,
}

impl Class {
    /// Creates a class whose clients ask all URLs, one request at a time.
    #[must_use]
    pub fn new(kind: ClientKind, connections: u32) -> Self {
        Self { kind, connections, depth: 1, url: None, burst: 1 }
    }

    /// Returns the most requests that a client may have pending; more than one only for kinds that support
    /// it.
    pub(crate) fn depth(&self) -> usize {
        match self.kind {
            ClientKind::Greedy | ClientKind::Pipelined | ClientKind::Scheduled { .. } => {
                self.depth.max(1) as usize
            }
            _ => 1,
        }
    }

    /// Returns the schedule of client `number`. The rate of an open loop rises during `ramp`.
    pub(crate) fn schedule(&self, number: u32, ramp: Duration) -> Schedule {
        match self.kind {
            ClientKind::Polite { pause } => Schedule::After { pause_ns: nanoseconds(pause) },
            ClientKind::Scheduled { rate, arrivals } => {
                let ramp = Ramp { ramp_ns: nanoseconds(ramp) };
                if self.burst > 1 {
                    return bursts(rate, self.burst, self.connections, number, ramp);
                }
                open_loop(rate, arrivals, self.connections, number, ramp)
            }
            ClientKind::Idle => Schedule::Once,
            _ => Schedule::Always,
        }
    }
}

impl ClientKind {
    /// The name of the kind, in a mix and in reports.
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

    /// Whether clients of this kind can expect equal shares.
    #[must_use]
    pub fn is_judged(self) -> bool {
        !matches!(self, Self::Trickle { .. } | Self::SlowRead { .. } | Self::Idle)
    }
}

/// Converts a duration to nanoseconds, limited to `u64::MAX`.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
