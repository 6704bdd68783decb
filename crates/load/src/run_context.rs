//! The state that all clients of a run share.

use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::io::Errno;

use crate::plan::{Class, Plan, nanoseconds};
use crate::timers::Timers;

/// What every client of a run uses.
pub(crate) struct RunContext<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) epoll: OwnedFd,
    /// By URL, in the plan's order.
    pub(crate) requests: Vec<RepeatedRequest>,
    pub(crate) buffer: Vec<u8>,
    pub(crate) timers: Timers,
    /// How many requests may still be asked.
    pub(crate) left: u64,
    /// The errno of the last failed connect.
    pub(crate) refusal: Option<Errno>,
    pub(crate) start: Instant,
}

/// A request, as often as it may be pending, so that any part of them can be sent at once.
pub(crate) struct RepeatedRequest {
    pub(crate) bytes: Vec<u8>,
    /// The length of one.
    pub(crate) one_bytes: usize,
}

impl RepeatedRequest {
    /// All that a plan sends.
    pub(crate) fn of(plan: &Plan) -> Vec<Self> {
        let depth = plan.classes.iter().map(Class::depth).max().unwrap_or(1);
        let repeated = |bytes: &[u8]| Self { bytes: bytes.repeat(depth), one_bytes: bytes.len() };
        plan.urls.iter().map(|url| repeated(url.request.bytes())).collect()
    }
}

impl RunContext<'_> {
    /// Nanoseconds since the start of the run.
    pub(crate) fn now_ns(&self) -> u64 {
        nanoseconds(self.start.elapsed())
    }
}
