//! HTTP/2 for servers, without sockets or a runtime: bytes and responses go in, requests and bytes come out.
//!
//! A [`Session`] is a connection of the `h2` crate over memory; only this crate depends on `h2`. Each request is a head
//! in the form of HTTP/1 and a [`Stream`], so that a single strict parser checks requests of both versions. Responses
//! have heads in the form of HTTP/1 as well.
//!
//! Reading order:
//!
//! 1. [`Limits`]: the limits on the cost of a client.
//! 2. `frames`: counts a client's frames by kind, before any work is done for them. `screen` and `hpack`: replace
//!    malformed requests, for which `h2` would end the whole connection.
//! 3. `wire`: the memory that `h2` reads and writes. `session` and `stream`: a connection and its streams.
//! 4. `heads`: translates heads between HTTP/1 and HTTP/2. [`Priority`]: the order in which responses are sent.
#![forbid(unsafe_code)]

mod frames;
mod heads;
mod hpack;
mod limits;
mod priority;
mod screen;
mod session;
mod stream;
mod wire;

pub use frames::{Excess, PREFACE};
pub use limits::{Limits, Rate};
pub use priority::Priority;
pub use session::{Progress, Session};
pub use stream::{BodyPart, Stream};
pub use wire::UNSENT_BYTES_MAX;
