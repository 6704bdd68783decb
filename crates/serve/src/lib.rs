//! Serves HTTP/1 and HTTP/2 connections a turn at a time.
//!
//! A **turn** is one request or one quantum of a body. The connection that has waited longest has the next turn, so no
//! client starves others.
//!
//! The owner of an [`Engine`] drives it; the engine itself knows no threads. A folder's server drives one engine in
//! each thread. The gem shares one engine between Ruby threads and a standby thread. A [`Handler`] decides how a
//! request is handled.
//!
//! # Rooms
//!
//! Each folder is a layer, and imports between folders run down only (`cargo x rooms` checks for circles). Each
//! `mod.rs` opens with a reading order.
//!
//! | folder | holds |
//! | --- | --- |
//! | `engine` | drives the rest: turns, accepting, migration between workers, the end of service |
//! | `folder` | a handler that serves files |
//! | `exchange` | one request: reading, handing to a handler, responding, closing; `http2` and `upgraded` beside it |
//! | `store` | all connections: lookup, turns, deadlines, certificates |
//! | [`workers`] | the memory that workers share, and the messages by which connections move |
//! | `entry` | one connection: socket, TLS session, HTTP/1 connection, HTTP/2 connection or stream, WebSocket |
//! | `queue` | the order of turns: credit, clients, policy; pure, with a simulation |
//! | `output` | bytes that a client has yet to take |
//! | `metrics` | counters that all workers share, and how they are written |
//! | `range` | the ranges that a client asks for |
//! | `settings`, `listen` | configuration; addresses and listening sockets |
//! | `events` | poller, timers, clock, slots |
//!
//! # The path of a request
//!
//! 1. `engine` takes an event from `events::poller`. `store` marks the connection readable and queues it.
//! 2. [`Engine::turn`] takes the connection with the lowest key out of `queue::run_queue`.
//! 3. `exchange::reading` reads the socket and parses the head. `exchange::fairness` may park the request until its
//!    client's turn, `exchange::admission` may refuse it.
//! 4. The [`Handler`] gets the request with an [`Exchange`], and responds at once or keeps a [`Ticket`].
//! 5. `exchange::response` writes head and body through `entry`, which sends them or keeps the rest in `output`.
//! 6. `store` settles the connection: its next deadline, and its next turn if there is more to do.
//!
//! # How things end
//!
//! | level | words |
//! | --- | --- |
//! | server | [`ShutdownMode`]: announced, handed over to other workers or the next program, drained, or aborted |
//! | worker | drains: its slot in the [`WorkerTable`] says that it takes no more |
//! | connection | closed; lingers if its client may still send; reset in the middle of a response |
//! | WebSocket, events | the close is planned, the last frames are flushed, the socket is closed |
#![forbid(unsafe_code)]

mod engine;
mod entry;
mod error;
mod events;
mod exchange;
mod folder;
mod listen;
mod metrics;
mod output;
mod queue;
mod range;
mod settings;
mod store;
pub mod workers;

pub use engine::attention::Attention;
pub use engine::server::Server;
pub use engine::stats::{purge, purge_cache, stats};
pub use engine::{Engine, EngineHandle, inheritance, tls};
pub use entry::Payload;
pub use entry::socket_state::{SocketEvent, UpgradeTo};
pub use entry::ticket::{TICKET_BYTES, Ticket};
pub use entry::upload::Body;
pub use error::Error;
pub use events::clock::monotonic_us;
pub use events::poller::{Bell, Events, Waiter, Waker};
pub use events::stop_signals::StopSignals;
pub use exchange::handler::{Exchange, Handler};
pub use exchange::response::{Direction, Response, ResponseWriter, WriteOutcome};
pub use exchange::upgraded::socket_writer::SocketWriter;
pub use folder::Folder;
pub use listen::address::Address;
pub use listen::bind::Bind;
pub use listen::listener::{Listener, Peer};
pub use listen::trust::Trust;
pub use metrics::{Time, WorkerMetrics};
pub use output::unchunk::are_chunks;
pub use output::{Part, QUANTUM_BYTES, SharedBytes};
pub use settings::client_source::ClientSource;
pub use settings::fair_by::FairBy;
pub use settings::{Settings, Timeouts, raise_descriptor_limit};
pub use store::service_state::ShutdownMode;
pub use thruway_cache::Limits as CacheLimits;
pub use thruway_tls::Options as TlsOptions;
pub use thruway_websocket as websocket;
pub use workers::{Board, WorkerTable};
