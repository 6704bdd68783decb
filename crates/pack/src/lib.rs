//! The pack: one file that answers many look-ups, written once and only ever mapped.
//!
//! A pack holds **entries**. Each has a kind, a name, flags, the [`Stamp`] of the file it was made
//! from, and data. A kind is a number that means something to the pack's writer. What kinds there are,
//! and what their data says, is not known here: nothing in this crate is about Ruby.
//!
//! A pack is never changed: a new one is written beside it and renamed over it. So a reader sees a
//! whole file or none, and goes on reading the old one as long as it has it mapped. Nothing in a file
//! is believed before it is checked. The header, every entry and all data carry a checksum, and every
//! offset is held against the file's length. A damaged or foreign file is an error or a miss.
//!
//! Reading order: [`layout`] (where everything is), [`pack`] (look up, verify), [`build`](mod@build)
//! (make one), [`file`](mod@file) (which files are trusted, and how they are replaced).
#![forbid(unsafe_code)]

pub mod build;
mod error;
pub mod file;
pub mod layout;
pub mod pack;

pub use build::{Builder, Item};
pub use error::Error;
pub use file::{PackFile, Written, check_place, remove_partial, replace};
pub use pack::{Entry, Pack};
pub use thruway_resolve::stamp::{Stamp, now_ns};
pub use thruway_sys::printable;
