//! Ruby's boot as data: features, load path and compiled code, served from a pack.
//!
//! *Answer the look-ups, let Ruby do the require.* This crate tells the path of a feature, the file at that
//! path, and the code that the file compiles to. `require` itself stays Ruby's. Nothing in this crate calls
//! Ruby.
//!
//! Reading order:
//!
//! 1. [`boot`](mod@boot): ties the other modules together.
//! 2. [`files`] and [`folders`]: cache the state of the disk, which `disk` queries.
//! 3. [`load_path`]: finds the path of a feature's name.
//! 4. [`code`]: decides when compiled code may be used.
//! 5. [`learned_entries`]: collects entries for the next pack.
//! 6. [`cache_path`] and [`options`]: where the pack is, and how the boot uses it.
#![forbid(unsafe_code)]

pub mod boot;
pub mod cache_path;
pub mod code;
mod disk;
pub mod document;
pub mod files;
pub mod folders;
mod frozen;
pub mod heap;
pub mod inspect;
mod json;
pub mod kind;
pub mod learned_entries;
pub mod listing;
pub mod load_path;
pub mod options;
pub mod path;
pub mod report;
#[cfg(unix)]
mod rights;
#[cfg(windows)]
#[path = "rights/windows.rs"]
mod rights;
pub mod zone;

pub use boot::{Boot, CachedDocument, read};
pub use cache_path::Environment;
pub use code::{Reason, Warnings};
pub use files::{Files, FoundFile, Lookup};
pub use folders::{DiskQuery, Observer};
pub use load_path::{LoadPath, Resolution};
pub use options::{Options, Part, Trust};
pub use thruway_pack::{check_place, now_ns, remove_partial};
