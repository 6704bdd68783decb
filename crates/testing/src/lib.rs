//! What the tests of all crates share.
#![forbid(unsafe_code)]

pub mod http_server;
mod random;
mod skipped;
pub mod table;

pub use random::{Random, setting};
pub use skipped::skipped;
