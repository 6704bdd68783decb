//! Connections that speak HTTP/2.
//!
//! Each stream is an entry of the registry, like a connection with one request. So queue, admission, deadlines, tickets
//! and metrics are those of HTTP/1. What differs is here: how streams come in (`input`), and how their responses
//! leave (`output`).

pub(crate) mod begin;
pub(crate) mod input;
pub(crate) mod output;
