//! The state that all clients of a run share.

use std::os::fd::OwnedFd;
use std::time::Instant;

use crate::Request;
use crate::broadcast::Broadcasts;
use crate::budget::Budget;
use crate::failures::Failures;
use crate::plan::{Class, Plan, Protocol, nanoseconds};
use crate::timeline::Interval;
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
    /// The requests that all threads may still make.
    pub(crate) budget: &'a Budget,
    /// Whether the warm-up is over, so that requests count.
    pub(crate) is_warm: bool,
    /// The counts since the last tick.
    pub(crate) interval: Interval,
    /// The reasons of failures.
    pub(crate) failures: Failures,
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
    /// Whether no further request may be made.
    pub(crate) fn is_spent(&self) -> bool {
        self.is_warm && self.budget.is_spent()
    }

    /// Takes a request from the budget. Returns whether there was one. A warm-up costs nothing.
    pub(crate) fn take_request(&self) -> bool {
        !self.is_warm || self.budget.take()
    }

    /// Returns the nanoseconds since the start of the run.
    pub(crate) fn now_ns(&self) -> u64 {
        nanoseconds(self.start.elapsed())
    }
}
