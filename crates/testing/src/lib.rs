//! What the tests of all crates share.
#![forbid(unsafe_code)]

#[cfg(unix)]
pub mod certificate;
pub mod http_server;
mod progress;
mod random;
mod skipped;
pub mod table;

pub use progress::Progress;
pub use random::{Random, setting};
pub use skipped::skipped;
