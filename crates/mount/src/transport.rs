//! The two transports of requests: `/dev/fuse` and io_uring.
//!
//! A [`reader`] of the [`device`] is one of a [`reader_pool`]: the leader waits for requests, the followers help. A
//! [`ring`] serves the queue of one CPU. Both give each request to the [`dispatch`]: slow ones go to the [`pool`], all
//! others are served at once by a [`handler`]. [`reply`] is the way back.

pub(crate) mod device;
pub(crate) mod dispatch;
mod handler;
pub(crate) mod pool;
pub(crate) mod reader;
pub(crate) mod reader_pool;
pub(crate) mod reply;
pub(crate) mod ring;
