//! The unanswered requests of one client, and how many of their bytes have been sent.

use std::collections::VecDeque;
use std::ops::Range;

/// An unanswered request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PendingRequest {
    /// When the request was due, in nanoseconds since the start of the run.
    pub(crate) due_ns: u64,
    /// The index of the URL in the plan.
    pub(crate) url: usize,
    /// The index among all prepared requests.
    pub(crate) request: usize,
    /// The number of the broadcast; 0 for other requests.
    pub(crate) number: u64,
}

/// Pending requests, oldest first. A prefix of their bytes has been sent.
#[derive(Debug, Default)]
pub(crate) struct PendingRequests {
    requests: VecDeque<PendingRequest>,
    /// The number of requests sent completely.
    sent: usize,
    /// The number of bytes sent of the next request.
    sent_bytes: usize,
}

impl PendingRequests {
    pub(crate) fn with_capacity(depth: usize) -> Self {
        Self { requests: VecDeque::with_capacity(depth), ..Self::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    pub(crate) fn oldest(&self) -> Option<PendingRequest> {
        self.requests.front().copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &PendingRequest> {
        self.requests.iter()
    }

    pub(crate) fn push(&mut self, request: PendingRequest) {
        self.requests.push_back(request);
    }

    /// Removes the oldest request, which has its response. Also returns whether the request had been sent
    /// completely.
    pub(crate) fn pop(&mut self) -> Option<(PendingRequest, bool)> {
        let request = self.requests.pop_front()?;
        let was_sent = self.sent > 0;
        self.sent = self.sent.saturating_sub(1);
        if !was_sent {
            self.sent_bytes = 0;
        }
        Some((request, was_sent))
    }

    /// Whether there are bytes left to send.
    pub(crate) fn is_unsent(&self) -> bool {
        self.sent < self.requests.len()
    }

    /// Returns the next part to send: a request, and a range of its repetition. `bytes` returns the length
    /// of a request.
    pub(crate) fn next_part(
        &self,
        bytes: impl Fn(usize) -> usize,
    ) -> Option<(usize, Range<usize>)> {
        let mut unsent = self.requests.iter().skip(self.sent).map(|pending| pending.request);
        let request = unsent.next()?;
        let alike = 1 + unsent.take_while(|other| *other == request).count();
        Some((request, self.sent_bytes..alike * bytes(request)))
    }

    /// Records that `bytes` of that part were sent; a request for its URL has `request_bytes`.
    pub(crate) fn count_sent(&mut self, bytes: usize, request_bytes: usize) {
        let bytes = self.sent_bytes + bytes;
        self.sent += bytes / request_bytes;
        self.sent_bytes = bytes % request_bytes;
    }

    /// Marks all requests as unsent, because they have to be sent on another connection.
    pub(crate) fn resend(&mut self) {
        (self.sent, self.sent_bytes) = (0, 0);
    }

    pub(crate) fn clear(&mut self) {
        self.requests.clear();
        self.resend();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the length of a request: 10 bytes for URL 0, 20 for URL 1.
    fn bytes(url: usize) -> usize {
        10 * (url + 1)
    }

    fn pending(urls: &[usize]) -> PendingRequests {
        let mut pending = PendingRequests::default();
        urls.iter().for_each(|url| {
            pending.push(PendingRequest { due_ns: 0, url: *url, request: *url, number: 0 })
        });
        pending
    }

    #[test]
    fn requests_of_one_url_are_sent_at_once() {
        let mut pending = pending(&[0, 0, 0, 1, 1, 0]);
        let mut parts = Vec::new();
        while let Some((url, part)) = pending.next_part(bytes) {
            pending.count_sent(part.len(), bytes(url));
            parts.push((url, part));
        }
        assert_eq!(parts, [(0, 0..30), (1, 0..40), (0, 0..10)]);
        assert!(!pending.is_unsent());
    }

    #[test]
    fn a_part_goes_on_where_the_last_one_ended() {
        let mut pending = pending(&[1, 1, 0]);
        pending.count_sent(25, bytes(1));
        assert_eq!(pending.next_part(bytes), Some((1, 5..20)));
        pending.count_sent(15, bytes(1));
        assert_eq!(pending.next_part(bytes), Some((0, 0..10)));
    }

    #[test]
    fn a_response_to_a_partly_sent_request_is_noticed() {
        let mut pending = pending(&[0, 0]);
        pending.count_sent(15, bytes(0));
        assert_eq!(pending.pop().map(|(_, was_sent)| was_sent), Some(true));
        assert_eq!(pending.next_part(bytes), Some((0, 5..10)));
        assert_eq!(pending.pop().map(|(_, was_sent)| was_sent), Some(false));
        assert_eq!(pending.pop(), None);
    }

    #[test]
    fn another_connection_gets_all_of_them() {
        let mut pending = pending(&[0, 1]);
        pending.count_sent(10, bytes(0));
        pending.count_sent(7, bytes(1));
        pending.resend();
        assert_eq!(pending.next_part(bytes), Some((0, 0..10)));
    }
}
