//! TLS without I/O.
//!
//! A [`Session`] opens what a client has sealed and seals what it gets; its owner reads and writes the socket.
//! Only this crate knows rustls.
//!
//! Reading order:
//!
//! 1. [`Options`]: what a listener's address says of TLS.
//! 2. `server`: the [`ServerContext`], which begins sessions; it reads its files anew when they change.
//! 3. `certificates`: which certificate a client gets. `files`: what is refused of a file.
//! 4. `tickets`: the keys of session tickets, in memory that workers share.
//! 5. `session`: one connection's state. `client`: what a client of a measurement begins.
#![forbid(unsafe_code)]

mod certificates;
mod client;
mod error;
mod failure;
mod files;
mod options;
mod server;
mod session;
mod tickets;

pub use client::ClientContext;
pub use error::Error;
pub use options::{Options, Verify};
pub use server::ServerContext;
pub use session::{OpenError, RECORD_BYTES_MAX, Session};
pub use tickets::TicketKeys;
