//! Helpers that the tests of all crates share.
#![forbid(unsafe_code)]

#[cfg(unix)]
pub mod certificate;
pub mod http_server;
mod port;
#[cfg(unix)]
mod program;
mod progress;
mod random;
mod skipped;
pub mod table;

pub use port::free_port;
#[cfg(unix)]
pub use program::{copy_program, write_program};
pub use progress::Progress;
pub use random::{Random, setting};
pub use skipped::skipped;
