//! Helpers that the tests of all crates share.
#![forbid(unsafe_code)]

#[cfg(unix)]
pub mod certificate;
pub mod http_server;
#[cfg(unix)]
mod program;
mod progress;
mod random;
mod skipped;
pub mod table;

#[cfg(unix)]
pub use program::{copy_program, write_program};
pub use progress::Progress;
pub use random::{Random, setting};
pub use skipped::skipped;
