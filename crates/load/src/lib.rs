//! Load on an HTTP server, and each connection's share of the responses.
//!
//! An average hides a starved client: a server that answers four connections of ten looks *fast*. So
//! everything here is counted per connection, and whatever is still pending at the end counts too.
//!
//! Reading order:
//!
//! 1. [`Plan`]: what to ask of which server, and for how long.
//! 2. [`schedule`]: when a client's next request is due.
//! 3. [`client`]: one connection, which asks, reads and counts.
//! 4. [`conversation`]: what it speaks: [`http1`], [`http2`] or [`websocket`].
//! 5. [`engine`]: epoll over all of them, in one thread.
//! 6. [`Report`]: what a run showed.
//!
//! What it sends and reads is written and read here, by no code of our server, so that it can convict one. TLS alone is
//! shared, and is rustls.
#![forbid(unsafe_code)]

mod account;
mod broadcast;
mod client;
mod conversation;
mod engine;
mod error;
mod exchange;
mod fairness;
mod histogram;
mod http1;
mod http2;
mod interrupt;
mod outgoing;
mod pace;
mod pending;
mod plan;
#[cfg(test)]
mod random_bytes;
mod report;
mod request;
mod response;
mod rotation;
mod run_context;
mod schedule;
mod socket;
mod tally;
mod target;
mod timers;
mod websocket;

pub use engine::{Progress, run};
pub use error::Error;
pub use fairness::{is_starved, jain};
pub use histogram::Histogram;
pub use interrupt::Interrupt;
pub use plan::{Class, ClientKind, Messages, Plan, Protocol, WeightedRequest};
pub use report::{
    BroadcastReport, ConnectionReport, Fairness, GroupReport, Latency, Report, StreamReport,
    UrlReport,
};
pub use request::Request;
pub use schedule::Arrivals;
pub use target::{Address, Url};
