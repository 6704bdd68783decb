//! Connections that speak HTTP/2.
//!
//! Each stream is an entry of the registry, like a connection with a single request. Queue, admission, deadlines,
//! tickets and metrics are therefore the same as for HTTP/1. Only the differences are here: `input` receives streams,
//! and `output` sends their responses.

pub(crate) mod begin;
pub(crate) mod input;
pub(crate) mod output;
