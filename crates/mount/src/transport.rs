//! The two ways of a request: `/dev/fuse` and io_uring.
//!
//! A [`reader`] of the [`device`] is one of a [`reader_pool`]: one waits, the others help. A [`ring`] serves the queue of
//! one processor. What takes long goes to the [`pool`]. [`reply`] is the way back.

pub(crate) mod device;
pub(crate) mod pool;
pub(crate) mod reader;
pub(crate) mod reader_pool;
pub(crate) mod reply;
pub(crate) mod ring;
