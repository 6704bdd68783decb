//! What the tests of all crates share.
#![forbid(unsafe_code)]

mod random;
mod skipped;
pub mod table;

pub use random::{Random, setting};
pub use skipped::skipped;
