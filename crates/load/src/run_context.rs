//! The state that all clients of a run share.

use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::io::Errno;

use crate::Request;
use crate::broadcast::Broadcasts;
use crate::plan::{Class, Plan, Protocol, nanoseconds};
use crate::timers::Timers;

/// The state that all clients of a run share.
pub(crate) struct RunContext<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) epoll: OwnedFd,
    /// The requests by URL, in the plan's order.
    pub(crate) requests: Vec<PreparedRequest>,
    pub(crate) buffer: Vec<u8>,
    pub(crate) timers: Timers,
    /// The broadcasts, if the plan has them.
    pub(crate) broadcasts: Option<Broadcasts>,
    /// The number of requests that may still be asked.
    pub(crate) left: u64,
    /// The error of the last failed connect.
    pub(crate) refusal: Option<Errno>,
    /// The last failure of TLS.
    pub(crate) tls_failure: Option<String>,
    pub(crate) start: Instant,
}

/// A request that is ready to be sent.
pub(crate) struct PreparedRequest {
    /// The request for HTTP/1, repeated as often as it may be pending, so that any part of the repetition can
    /// be sent at once.
    pub(crate) bytes: Vec<u8>,
    /// The length of one request.
    pub(crate) one_bytes: usize,
    /// The head for HTTP/2.
    pub(crate) fields: Vec<u8>,
    pub(crate) body: Vec<u8>,
    /// Whether the response has no body, whatever its head says.
    pub(crate) is_head: bool,
}

impl PreparedRequest {
    /// Prepares all requests of a plan.
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
    /// Returns the nanoseconds since the start of the run.
    pub(crate) fn now_ns(&self) -> u64 {
        nanoseconds(self.start.elapsed())
    }
}
