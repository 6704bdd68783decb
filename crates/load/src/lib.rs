//! Puts load on an HTTP server and measures each connection's share of the responses.
//!
//! Averages hide starved clients: a server that answers four connections of ten looks *fast*. Everything is
//! therefore counted for each connection, including requests that are still pending at the end.
//!
//! Reading order:
//!
//! 1. [`Plan`]: the server, the requests, the clients and the duration of a run.
//! 2. [`schedule`]: when a client's next request is due.
//! 3. [`client`]: a connection that asks, reads and counts.
//! 4. [`conversation`]: its protocol: [`http1`], [`http2`] or [`websocket`].
//! 5. [`mod@run`] and [`engine`]: runs all clients, each thread with epoll.
//! 6. [`Report`]: the results of a run.
//!
//! The encoding and decoding of all protocols is implemented here and shares no code with our server, so that
//! a defect of the server cannot hide. Only TLS is shared, which is rustls.
#![forbid(unsafe_code)]

mod account;
mod broadcast;
mod budget;
mod client;
mod conversation;
mod engine;
mod error;
mod exchange;
mod failures;
mod fairness;
mod histogram;
mod http1;
mod http2;
mod interrupt;
mod latency;
mod pace;
mod pending;
mod plan;
mod progress;
#[cfg(test)]
mod random_bytes;
mod report;
mod request;
mod response;
mod rotation;
mod run;
mod run_context;
mod schedule;
mod send_buffer;
mod socket;
mod tally;
mod target;
mod timeline;
mod timers;
mod websocket;

pub use error::Error;
pub use fairness::{is_starved, jain};
pub use histogram::{Bucket, Histogram};
pub use interrupt::Interrupt;
pub use latency::Latency;
pub use plan::{Class, ClientKind, Messages, Plan, Protocol, WeightedRequest};
pub use progress::Progress;
pub use report::{
    BroadcastReport, ConnectionReport, FailureReport, Fairness, GroupReport, Report, StreamReport,
    UrlReport,
};
pub use request::Request;
pub use run::run;
pub use schedule::Arrivals;
pub use target::{Address, Url};
pub use thruway_tls::{ClientContext, ClientOptions, Trust};
pub use timeline::TimelineRow;
