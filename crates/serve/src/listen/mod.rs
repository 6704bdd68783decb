//! The sources of connections: addresses, listening sockets, and trusted proxies.
//!
//! Reading order: `address` and `bind` name the addresses of a server; `listener` opens them and accepts connections;
//! `trust` decides which peers are proxies.

pub(crate) mod address;
pub(crate) mod bind;
pub(crate) mod listener;
pub(crate) mod secure_site;
pub(crate) mod trust;
