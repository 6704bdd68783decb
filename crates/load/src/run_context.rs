//! The state that all clients of a run share.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::time::Instant;

use crate::Request;
use crate::broadcast::Broadcasts;
use crate::budget::Budget;
use crate::failures::Failures;
use crate::plan::{Class, Plan, Protocol, WeightedRequest, nanoseconds};
use crate::timeline::Interval;
use crate::timers::Timers;

/// The state that all clients of a run share.
pub(crate) struct RunContext<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) epoll: OwnedFd,
    /// The requests, those of the first URL first.
    pub(crate) requests: Vec<PreparedRequest>,
    /// The range of each URL's requests.
    pub(crate) ranges: Vec<Range<usize>>,
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
        let prepared = |request: &Request, repeats| Self {
            bytes: request.bytes().repeat(repeats),
            one_bytes: request.bytes().len(),
            fields: request.fields().to_vec(),
            body: request.body().to_vec(),
            is_head: request.is_head(),
        };
        let of_url = |url: &WeightedRequest| {
            // Requests that differ are sent one by one, so they need not be repeated.
            let repeats = if url.others.is_empty() { depth } else { 1 };
            let all = std::iter::once(&url.request).chain(&url.others);
            all.map(|request| prepared(request, repeats)).collect::<Vec<_>>()
        };
        plan.urls.iter().flat_map(of_url).collect()
    }

    /// Returns the range of each URL's requests among those of `of`.
    pub(crate) fn ranges(plan: &Plan) -> Vec<Range<usize>> {
        let mut end = 0;
        let range = |url: &WeightedRequest| {
            let start = end;
            end += 1 + url.others.len();
            start..end
        };
        plan.urls.iter().map(range).collect()
    }
}

impl RunContext<'_> {
    /// Whether no further request may be made.
    pub(crate) fn is_spent(&self) -> bool {
        self.is_warm && self.budget.is_spent()
    }

    /// Returns the request for a URL that is a client's turn. Each client begins at another place.
    pub(crate) fn pick(&self, url: usize, turn: u64, client: usize) -> usize {
        let range = &self.ranges[url];
        let count = range.len() as u64;
        // An odd multiple of the golden ratio spreads the clients over the requests.
        let place = turn.wrapping_add((client as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16);
        range.start + usize::try_from(place % count.max(1)).unwrap_or(0)
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
