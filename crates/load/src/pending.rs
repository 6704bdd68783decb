//! The requests of one client that are not answered yet, and how far they have been sent.

use std::collections::VecDeque;
use std::ops::Range;

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PendingRequest {
    /// When it was due, in nanoseconds since the start of the run.
    pub(crate) due_ns: u64,
    /// The place of its URL in the plan.
    pub(crate) url: usize,
    /// Of broadcasts, which it is.
    pub(crate) number: u64,
}

/// Pending requests, the oldest first. A prefix of their bytes has been sent.
#[derive(Debug, Default)]
pub(crate) struct PendingRequests {
    requests: VecDeque<PendingRequest>,
    /// How many are sent in full.
    sent: usize,
    /// How many bytes of the next one are sent.
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

    /// The oldest has its response; and whether it had been sent in full.
    pub(crate) fn pop(&mut self) -> Option<(PendingRequest, bool)> {
        let request = self.requests.pop_front()?;
        let was_sent = self.sent > 0;
        self.sent = self.sent.saturating_sub(1);
        if !was_sent {
            self.sent_bytes = 0;
        }
        Some((request, was_sent))
    }

    /// Whether there is anything left to send.
    pub(crate) fn is_unsent(&self) -> bool {
        self.sent < self.requests.len()
    }

    /// What can be sent at once: a URL, and a part of its request written again and again. `bytes` tells how long a
    /// URL's request is.
    pub(crate) fn next_part(
        &self,
        bytes: impl Fn(usize) -> usize,
    ) -> Option<(usize, Range<usize>)> {
        let mut unsent = self.requests.iter().skip(self.sent).map(|request| request.url);
        let url = unsent.next()?;
        let alike = 1 + unsent.take_while(|other| *other == url).count();
        Some((url, self.sent_bytes..alike * bytes(url)))
    }

    /// So many bytes of that part were sent; a request of its URL has `request_bytes`.
    pub(crate) fn count_sent(&mut self, bytes: usize, request_bytes: usize) {
        let bytes = self.sent_bytes + bytes;
        self.sent += bytes / request_bytes;
        self.sent_bytes = bytes % request_bytes;
    }

    /// They have to be sent again, from the start: on another connection.
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

    /// URL 0 has a request of 10 bytes, URL 1 one of 20.
    fn bytes(url: usize) -> usize {
        10 * (url + 1)
    }

    fn pending(urls: &[usize]) -> PendingRequests {
        let mut pending = PendingRequests::default();
        urls.iter()
            .for_each(|url| pending.push(PendingRequest { due_ns: 0, url: *url, number: 0 }));
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
    fn a_response_before_its_request_was_sent_is_told() {
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
