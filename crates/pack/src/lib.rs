//! Packs: single files that answer many look-ups, written once and then only mapped.
//!
//! A pack holds **entries**. Each has a kind, a name, flags, the [`Stamp`] of the file from which the entry was
//! derived, and data. Kinds are numbers; only the writer of a pack knows their meaning and that of the data. Nothing in
//! this crate is specific to Ruby.
//!
//! A pack is never modified: a new one is written beside it and renamed over it. A reader therefore sees a
//! whole file or none, and continues with the old one while it is mapped. Nothing in a file is trusted before
//! it is checked. The header, every entry and all data have a checksum, and every offset is compared with the
//! file's length. A damaged or foreign file leads to an error or a miss.
//!
//! Reading order: [`layout`] (the format), [`pack`] (look-ups and verification), [`build`](mod@build)
//! (construction), [`file`](mod@file) (which files are trusted, and how they are replaced).
#![forbid(unsafe_code)]

pub mod build;
#[cfg(unix)]
mod disk_posix;
#[cfg(windows)]
mod disk_windows;
mod error;
pub mod file;
mod identity;
pub mod layout;
pub mod pack;

pub use build::{Builder, Item};
pub use error::Error;
pub use file::{PackFile, WriteOutcome, check_place, remove_partial, replace};
pub use identity::Inode;
pub use pack::{Entry, Pack};
pub use thruway_resolve::stamp::{Stamp, now_ns};
pub use thruway_sys::printable;
