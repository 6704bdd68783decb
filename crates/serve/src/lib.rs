//! Serves HTTP/1 connections a turn at a time.
//!
//! A **turn** is one request or one quantum of a body. What has waited longest has the next turn, so no client
//! keeps others from theirs.
//!
//! The [`Engine`] is driven by its owner and knows no threads: a folder's server drives one in each
//! thread. The gem shares one between Ruby threads and a thread that stands in for them. A [`Handler`] decides what
//! is done with a request.
//!
//! Reading order: [`engine`](Engine), `queue` (whose turn it is), `reading`, `connection` and `output`
//! (what a turn does), `attention` (what needs no handler), `connections` (what happens to a connection between
//! its turns), `migration` (requests that move between workers), `spool_file` and `pace` (clients that do not take
//! their responses), [`workers`] (several engines), `folder`.
#![forbid(unsafe_code)]

mod activity;
mod attention;
mod bind;
mod connection;
mod connections;
mod engine;
mod error;
mod exchange;
mod folder;
pub mod listener;
mod migration;
mod output;
mod pace;
mod poller;
mod queue;
mod reading;
mod server;
mod settings;
mod slab;
mod spool_file;
mod stop;
mod stream;
mod timer_wheel;
mod unchunk;
mod upload;
mod warnings;
pub mod workers;

pub use self::connections::monotonic_us;
pub use attention::Attention;
pub use bind::Bind;
pub use connection::Payload;
pub use engine::Engine;
pub use error::Error;
pub use exchange::{Exchange, Handler, Response, TICKET_BYTES, Ticket};
pub use folder::Folder;
pub use listener::{Address, Listener, Peer};
pub use output::{Part, QUANTUM_BYTES, SharedBytes};
pub use poller::{Bell, Events, Waiter, Waker};
pub use server::Server;
pub use settings::{Settings, Timeouts, raise_descriptor_limit};
pub use stop::StopSignals;
pub use stream::Written;
pub use upload::Body;
pub use workers::{Board, WorkerGroup};
