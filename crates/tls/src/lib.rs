//! TLS without I/O.
//!
//! A [`Session`] decrypts the bytes of its peer and encrypts the bytes to send; its owner reads and writes the socket.
//! Only this crate depends on rustls.
//!
//! Reading order:
//!
//! 1. [`Options`]: the TLS parameters in a listener's address.
//! 2. `server`: the [`ServerContext`], which creates sessions, and reloads its files when they change.
//! 3. [`AcmeFolder`]: the folder of the certificates that an ACME agent renews. [`CertificateReport`]: their state.
//! 4. `certificates`: the choice of a certificate for a client. `files`: loading and checking files.
//! 5. `tickets`: the keys of session tickets, in memory that workers share.
//! 6. `session`: the state of a connection. `client`: the sessions of a load generator.
#![forbid(unsafe_code)]

mod acme_folder;
mod certificate_report;
mod certificates;
mod client;
mod error;
mod failure;
mod files;
mod options;
mod server;
mod session;
mod tickets;

pub use acme_folder::AcmeFolder;
pub use certificate_report::CertificateReport;
pub use certificates::{checked_certificate, install_provider};
pub use client::{ClientContext, ClientOptions, Trust};
pub use error::Error;
pub use options::{Automatic, Options, Verify, percent_decoded};
pub use server::ServerContext;
pub use session::{OpenError, RECORD_BYTES_MAX, Session};
pub use tickets::TicketKeys;
