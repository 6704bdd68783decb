//! The FUSE protocol of Linux: bytes ↔ requests and replies. No I/O, no files, no threads.
//!
//! The kernel sends a **request**: a header, the structure of the operation, and names or data. Over `/dev/fuse` the
//! three arrive in one read; over io_uring they arrive in three buffers. [`Frame`] is both. The daemon sends back a
//! **reply**: an errno, or a body.
//!
//! Reading order: [`wire`] (the kernel's structures, field by field), [`operation`], [`request`], [`reply`], [`init`]
//! (the negotiation of features), [`notification`] (messages without a request).
//!
//! The protocol is defined by `include/uapi/linux/fuse.h`; numbers and field names are its own.
#![forbid(unsafe_code)]

pub mod init;
pub mod notification;
pub mod operation;
pub mod reply;
pub mod request;
pub mod wire;

pub use init::{ConnectionOptions, InitRequest};
pub use notification::Notification;
pub use operation::Operation;
pub use reply::{Listing, Reply};
pub use request::{Caller, Frame, MalformedRequest, Request};

/// The kernel's number for the root of a mount.
pub const ROOT: u64 = 1;
