//! Serves connections of HTTP/1 and HTTP/2 a turn at a time.
//!
//! A **turn** is one request or one quantum of a body. What has waited longest has the next turn, so no client
//! keeps others from theirs.
//!
//! The owner of an [`Engine`] drives it; the engine itself knows no threads. A folder's server drives one engine in
//! each thread. The gem shares one between Ruby threads and a standby thread. A [`Handler`] decides what is done with
//! a request.
//!
//! Reading order:
//!
//! 1. [`engine`](Engine): events and turns; `acceptor`, `turns`, `deadlines` and `queue` are its parts.
//! 2. `reading`, `exchange`, `response`: what a turn does; `attention` is what needs no handler.
//! 3. `connections`, `connection`, `output`, `closing`: what happens to a connection between its turns.
//! 4. [`workers`], `migration`: several engines, and how requests move between them. `stage`, `ending`,
//!    [`inheritance`]: how service ends, and what the next server takes over.
//! 5. `tls_listeners`, `handshake`, `output::sealed`, `tunnel`: what differs for connections that speak TLS.
//! 6. `carrier`, `multiplexer`, `http2`: what differs for HTTP/2, whose streams are entries like connections.
//! 7. `upgraded`, `socket_state`, `socket_writer`: WebSockets and server-sent events.
//! 8. `metrics`, `observed`, `counting`: what is counted. `observer`: how it is read.
//! 9. `spool_file`, `pace`: clients that take their responses slowly. `folder`: a handler.
#![forbid(unsafe_code)]

mod acceptor;
mod activity;
mod address;
mod admission;
mod attention;
mod bind;
mod carrier;
mod client_source;
mod clock;
mod closing;
mod connection;
mod connections;
mod counting;
mod deadlines;
mod ending;
mod engine;
mod error;
mod exchange;
mod fair_by;
mod fairness;
mod farewell;
mod faulty_peers;
mod folder;
mod handshake;
mod http2;
pub mod inheritance;
mod listener;
mod metrics;
mod migration;
mod multiplexer;
mod observed;
mod observer;
mod output;
mod pace;
mod poller;
mod proxy_head;
mod queue;
mod reading;
mod request_start;
mod response;
mod server;
mod settings;
mod slab;
mod socket_state;
mod socket_writer;
mod spool_file;
mod stage;
mod stats;
mod stop;
mod ticket;
mod timer_wheel;
pub mod tls;
mod tls_listeners;
mod token;
mod trust;
mod tunnel;
mod turns;
mod unchunk;
mod upgraded;
mod upload;
mod waits;
mod warnings;
pub mod workers;

pub use address::Address;
pub use attention::Attention;
pub use bind::Bind;
pub use client_source::ClientSource;
pub use clock::monotonic_us;
pub use connection::Payload;
pub use engine::{Engine, EngineHandle};
pub use error::Error;
pub use exchange::{Exchange, Handler};
pub use fair_by::FairBy;
pub use folder::Folder;
pub use listener::{Listener, Peer};
pub use metrics::{Time, WorkerMetrics};
pub use output::{Part, QUANTUM_BYTES, SharedBytes};
pub use poller::{Bell, Events, Waiter, Waker};
pub use response::{Direction, Response, ResponseWriter, Written};
pub use server::Server;
pub use settings::{Settings, Timeouts, raise_descriptor_limit};
pub use socket_state::{SocketEvent, UpgradeTo};
pub use socket_writer::SocketWriter;
pub use stage::Ending;
pub use stats::stats;
pub use stop::StopSignals;
pub use thruway_tls::Options as TlsOptions;
pub use thruway_websocket as websocket;
pub use ticket::{TICKET_BYTES, Ticket};
pub use trust::Trust;
pub use unchunk::are_chunks;
pub use upload::Body;
pub use workers::{Board, WorkerGroup};
