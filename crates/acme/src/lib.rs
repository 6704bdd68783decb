//! Obtains and renews a server's certificates from an authority that speaks ACME (RFC 8555).
//!
//! The [`Agent`] runs in a process of its own, beside the server whose certificates it keeps. The two share only files:
//! the agent writes certificates and the answers to challenges into a [`Storage`], and the workers read them there
//! ([`thruway_tls::AcmeFolder`]). Several servers may share one storage: each attempt happens under a lock, and all
//! servers know the successes and failures of each.
//!
//! Reading order:
//!
//! 1. [`Settings`]: the authority, the names, the challenges.
//! 2. `agent`: the steps for a name that is due. `schedule`: when a name is due, without a clock of its own.
//! 3. `issuer`: the source of certificates. `authority`: the conversation with the authority. `client`: its
//!    requests, which block.
//! 4. `storage`: files, their rights, and the lock. `validity`: the end of a certificate.
#![forbid(unsafe_code)]

mod agent;
mod authority;
mod client;
mod dates;
mod domain_name;
mod error;
mod issuer;
mod schedule;
mod settings;
mod storage;
mod validity;

pub use agent::{Agent, Event};
pub use dates::date;
pub use domain_name::{DomainName, NAMES_MAX};
pub use error::Error;
pub use schedule::NameState;
pub use settings::{Challenge, ExternalAccount, LETS_ENCRYPT, Settings};
pub use storage::{NameReport, Storage};
