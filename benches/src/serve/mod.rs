//! `thruway serve` against other servers, under `thruway load`.

pub(super) mod arena;
pub(super) mod attacks;
pub(super) mod cache;
pub(crate) mod contender;
pub(super) mod fairness;
pub(super) mod files;
pub(super) mod http2;
mod load;
pub(super) mod many_connections;
pub(super) mod matrix;
pub(super) mod metrics;
pub(super) mod original;
pub(super) mod rack;
pub(super) mod restarts;
pub(crate) mod running;
pub(super) mod server;
pub(super) mod slow_service;
pub(super) mod sockets;
pub(super) mod streams;
pub(crate) mod system_root;
pub(super) mod tls;
pub(super) mod waiting;
