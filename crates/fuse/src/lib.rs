//! The FUSE protocol of Linux: bytes ↔ requests and replies. No I/O, no files, no threads.
//!
//! The kernel sends a **request**: a header, the operation's own structure, and what follows it
//! (names, data). Over `/dev/fuse` the three lie behind each other in one read; over io_uring they
//! arrive in three places. [`Frame`] is both. What goes back is an **answer**: an errno, or a body.
//!
//! Reading order: [`wire`] (the kernel's structures, field by field), [`operation`], [`request`],
//! [`answer`], [`init`] (what is agreed on first), [`notification`] (what the kernel is told unasked).
//!
//! The protocol is defined by `include/uapi/linux/fuse.h`; numbers and field names are its own.
#![forbid(unsafe_code)]

pub mod answer;
pub mod init;
pub mod notification;
pub mod operation;
pub mod request;
pub mod wire;

pub use answer::{Answer, Listing};
pub use init::{Agreement, Offer};
pub use notification::Notification;
pub use operation::Operation;
pub use request::{Caller, Frame, Malformed, Request};

/// The kernel's number for the root of a mount.
pub const ROOT: u64 = 1;
