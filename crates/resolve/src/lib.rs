//! Turns names into open files.
//!
//! A **name** is a sequence of bytes that a program asks for. A **search** tries its candidates (base × name
//! × suffix) and opens the first that exists. The result is an **open file**, never a path that has to be
//! looked up again.
//!
//! Reading order:
//!
//! 1. [`expand`](mod@expand): lexical expansion, which never touches the disk.
//! 2. [`name`]: turns a URL path into a name that cannot leave its base.
//! 3. [`disk`]: a [`Boundary`] opens names beneath a folder.
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
mod beneath;
#[cfg(target_os = "linux")]
pub mod disk;
mod error;
pub mod expand;
pub mod fold;
pub mod name;
pub mod native;
pub mod search;
pub mod stamp;
mod which;
pub mod wtf8;

#[cfg(target_os = "linux")]
pub use disk::{Boundary, Entry, FileKind, FileMatch, OpenFile};
pub use error::{Error, SystemError};
pub use expand::{Flavour, expand};
pub use name::{DenyList, Name, Refusal};
pub use stamp::Stamp;
pub use which::{which, which_in};

/// Compiles and runs the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
