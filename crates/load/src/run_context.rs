//! The state that all clients of a run share.

use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::io::Errno;

use crate::Request;
use crate::broadcast::Broadcasts;
use crate::plan::{Class, Plan, Protocol, nanoseconds};
use crate::timers::Timers;

/// What every client of a run uses.
pub(crate) struct RunContext<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) epoll: OwnedFd,
    /// By URL, in the plan's order.
    pub(crate) requests: Vec<Prepared>,
    pub(crate) buffer: Vec<u8>,
    pub(crate) timers: Timers,
    /// Messages to all clients, where the plan has them.
    pub(crate) broadcasts: Option<Broadcasts>,
    /// How many requests may still be asked.
    pub(crate) left: u64,
    /// The errno of the last failed connect.
    pub(crate) refusal: Option<Errno>,
    /// Why TLS failed the last time.
    pub(crate) tls_failure: Option<String>,
    pub(crate) start: Instant,
}

/// A request, ready to be sent.
pub(crate) struct Prepared {
    /// As HTTP/1 has it, as often as it may be pending, so that any part of them can be sent at once.
    pub(crate) bytes: Vec<u8>,
    /// The length of one.
    pub(crate) one_bytes: usize,
    /// Its head as HTTP/2 has it.
    pub(crate) fields: Vec<u8>,
    pub(crate) body: Vec<u8>,
    /// Whether its response has no body, whatever its head says.
    pub(crate) is_head: bool,
}

impl Prepared {
    /// All that a plan sends.
    pub(crate) fn of(plan: &Plan) -> Vec<Self> {
        let depth = match plan.protocol {
            Protocol::Http1 => plan.classes.iter().map(Class::depth).max().unwrap_or(1),
            Protocol::Http2 | Protocol::WebSocket(_) => 1,
        };
        let prepared = |request: &Request| Self {
            bytes: request.bytes().repeat(depth),
            one_bytes: request.bytes().len(),
            fields: request.fields().to_vec(),
            body: request.body().to_vec(),
            is_head: request.is_head(),
        };
        plan.urls.iter().map(|url| prepared(&url.request)).collect()
    }
}

impl RunContext<'_> {
    /// Nanoseconds since the start of the run.
    pub(crate) fn now_ns(&self) -> u64 {
        nanoseconds(self.start.elapsed())
    }
}
