//! Where connections come from: addresses, sockets that listen there, and the proxies that are trusted.
//!
//! Reading order: `address` and `bind` name what a server listens at; `listener` opens it and accepts from it; `trust`
//! decides which peers are proxies.

pub(crate) mod address;
pub(crate) mod bind;
pub(crate) mod listener;
pub(crate) mod secure_site;
pub(crate) mod trust;
