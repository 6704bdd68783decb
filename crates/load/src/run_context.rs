//! The state that all clients of a run share.

use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::io::Errno;

use crate::plan::{Plan, nanoseconds};
use crate::timers::Timers;

/// What every client of a run uses.
pub(crate) struct RunContext<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) epoll: OwnedFd,
    /// The request, as often as it may be pending, so that any part of it can be sent at once.
    pub(crate) requests: Vec<u8>,
    pub(crate) request_bytes: usize,
    pub(crate) buffer: Vec<u8>,
    pub(crate) timers: Timers,
    /// How many requests may still be asked.
    pub(crate) left: u64,
    /// The errno of the last failed connect.
    pub(crate) refusal: Option<Errno>,
    pub(crate) start: Instant,
}

impl RunContext<'_> {
    /// Nanoseconds since the start of the run.
    pub(crate) fn now_ns(&self) -> u64 {
        nanoseconds(self.start.elapsed())
    }
}
