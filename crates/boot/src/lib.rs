//! Ruby's boot as data: features, load path and compiled code, answered from a pack.
//!
//! *Answer the look-ups, let Ruby do the require.* This crate answers which path a feature has, what is
//! at that path and what it compiles to. What a `require` does with that is Ruby's business alone.
//! Nothing here calls Ruby.
//!
//! Reading order:
//!
//! 1. [`boot`](mod@boot): the whole of it.
//! 2. [`files`] and [`folders`]: what is known of the disk.
//! 3. [`load_path`]: from a name to a path.
//! 4. [`code`]: from a path to compiled code.
//! 5. [`learned`]: what goes into the next pack.
//! 6. [`cache_path`] and [`options`].
#![forbid(unsafe_code)]

pub mod boot;
pub mod cache_path;
pub mod code;
pub mod document;
pub mod files;
pub mod folders;
mod frozen;
pub mod inspect;
pub mod kind;
pub mod learned;
pub mod listing;
pub mod load_path;
pub mod options;
pub mod path;
pub mod report;
mod rights;

pub use boot::{Boot, CachedDocument, read};
pub use cache_path::Environment;
pub use code::{Reason, Warnings};
pub use files::{Files, FoundFile, Lookup};
pub use folders::{Asked, Observer};
pub use load_path::{LoadPath, Resolution};
pub use options::{Options, Part, Trust};
pub use thruway_pack::{check_place, now_ns, remove_partial};
