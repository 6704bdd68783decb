//! HTTP/2 for servers, without sockets and without a runtime: bytes in, bytes out, requests out, responses in.
//!
//! A [`Session`] is one connection, held by the `h2` crate over memory; only this crate knows `h2`. A request comes out
//! as a head of HTTP/1 and a [`Stream`], so that one strict parser judges requests of both versions. A response goes
//! in as such a head, too.
//!
//! Reading order:
//!
//! 1. [`Limits`]: what a client may cost, each limit with its name.
//! 2. `frames`: counts what a client sends by kind, before anything is done for it.
//!    `screen`, `hpack`: what `h2` would end the whole connection for.
//! 3. `wire`: the memory that `h2` reads and writes. `session`, `stream`: a connection and its streams.
//! 4. `heads`: heads of HTTP/1 and HTTP/2, from one to the other. [`Priority`]: which response is sent first.
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
pub use stream::{Incoming, Stream};
pub use wire::UNSENT_BYTES_MAX;
