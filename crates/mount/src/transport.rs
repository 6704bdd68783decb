//! The two transports of requests: `/dev/fuse` and io_uring.
//!
//! Reading order: a [`reader`] of the [`device`] belongs to a [`reader_pool`], whose leader waits for requests while
//! the followers help. A [`ring`] serves the queue of a CPU. Both pass each request to [`dispatch`], which leaves slow
//! requests to the [`pool`] and serves all others at once by a [`handler`]. [`reply`] defines the outcome of a request.

pub(crate) mod device;
pub(crate) mod dispatch;
mod handler;
pub(crate) mod pool;
pub(crate) mod reader;
pub(crate) mod reader_pool;
pub(crate) mod reply;
pub(crate) mod ring;
