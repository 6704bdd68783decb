//! Counts, of one connection, of a class, or of all.

use std::collections::BTreeMap;

use crate::Histogram;

/// The way in which a request or a connection failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// No connection was made: refused, unreachable, no such socket.
    Connect,
    /// The server closed the connection before the first byte of a pending response.
    Unanswered,
    /// The server closed the connection inside a response, because of a wrong length or a crash.
    Truncated,
    /// The server did not switch to WebSocket.
    Handshake,
    /// The bytes are not a response in the protocol.
    Malformed,
    /// Bytes without a request: a response longer than its length, or an additional one.
    Unasked,
    /// There was no response within the timeout.
    TimedOut,
    /// The connection was reset.
    Reset,
    /// TLS failed, usually in the handshake.
    Tls,
}

impl FailureKind {
    pub(crate) fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    pub(crate) const ALL: [(Self, &'static str); 9] = [
        (Self::Connect, "connect"),
        (Self::Unanswered, "unanswered"),
        (Self::Truncated, "truncated"),
        (Self::Handshake, "handshake"),
        (Self::Malformed, "malformed"),
        (Self::Unasked, "unasked"),
        (Self::TimedOut, "timed_out"),
        (Self::Reset, "reset"),
        (Self::Tls, "tls"),
    ];
}

/// Counts that can be added up.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    /// Requests answered in full, whatever the status.
    pub(crate) completed: u64,
    /// Requests that will never be answered.
    pub(crate) failed: u64,
    /// Bytes received, including heads.
    pub(crate) bytes: u64,
    /// The number of connections made.
    pub(crate) connects: u64,
    /// Responses by status, in the order in which each status came first. There are few.
    statuses: Vec<(u16, u64)>,
    /// Responses whose body has a content coding, such as gzip.
    pub(crate) encoded: u64,
    /// Requests that were sent again because the server had closed a kept connection.
    pub(crate) retried: u64,
    failures: [u64; FailureKind::ALL.len()],
    /// The time from when each answered request was due to its last byte, in nanoseconds.
    pub(crate) latency: Histogram,
}

impl Tally {
    /// Counts a response. Over WebSocket there is no status.
    pub(crate) fn complete(&mut self, status: Option<u16>, latency_ns: u64) {
        self.completed += 1;
        self.latency.record(latency_ns);
        status.into_iter().for_each(|status| self.count_status(status, 1));
    }

    fn count_status(&mut self, status: u16, count: u64) {
        match self.statuses.iter_mut().find(|(known, _)| *known == status) {
            Some((_, known)) => *known += count,
            None => self.statuses.push((status, count)),
        }
    }

    /// Returns the responses by status, in the order of the statuses.
    pub(crate) fn statuses(&self) -> BTreeMap<u16, u64> {
        self.statuses.iter().copied().collect()
    }

    /// Returns the responses by the first digit of their status; 0 stands for digits beyond 5.
    pub(crate) fn classes(&self) -> [u64; 6] {
        let mut classes = [0; 6];
        for (status, count) in &self.statuses {
            let class = usize::from(status / 100);
            classes[if class < classes.len() { class } else { 0 }] += count;
        }
        classes
    }

    /// Counts a failure, without the requests lost because of it.
    pub(crate) fn count_failure(&mut self, failure: FailureKind) {
        self.failures[failure as usize] += 1;
    }

    pub(crate) fn failures_of(&self, failure: FailureKind) -> u64 {
        self.failures[failure as usize]
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.completed += other.completed;
        self.failed += other.failed;
        self.bytes += other.bytes;
        self.connects += other.connects;
        self.encoded += other.encoded;
        self.retried += other.retried;
        other.statuses.iter().for_each(|(status, count)| self.count_status(*status, *count));
        let others = other.failures.iter();
        self.failures.iter_mut().zip(others).for_each(|(own, other)| *own += other);
        self.latency.merge(&other.latency);
    }
}

/// The counts of one client by URL. Whatever belongs to no request counts for the client's first URL.
#[derive(Debug)]
pub(crate) struct TallyByUrl {
    /// In the plan's order.
    tallies: Vec<Tally>,
    first: usize,
}

impl TallyByUrl {
    /// Creates empty counts for this number of URLs. `first` is the index of the client's first URL.
    pub(crate) fn new(urls: usize, first: usize) -> Self {
        Self { tallies: vec![Tally::default(); urls], first }
    }

    pub(crate) fn of(&self, url: usize) -> &Tally {
        &self.tallies[url]
    }

    pub(crate) fn of_mut(&mut self, url: usize) -> &mut Tally {
        &mut self.tallies[url]
    }

    /// Returns the counts for whatever belongs to no request.
    pub(crate) fn of_client(&mut self) -> &mut Tally {
        &mut self.tallies[self.first]
    }

    /// Forgets all counts. Whether a connection was ever made is kept.
    pub(crate) fn clear(&mut self) {
        let (count, connects) = (self.tallies.len(), self.of_client().connects);
        self.tallies = vec![Tally::default(); count];
        self.of_client().connects = connects;
    }

    /// Returns the sum over all URLs.
    pub(crate) fn sum(&self) -> Tally {
        let mut sum = Tally::default();
        self.tallies.iter().for_each(|tally| sum.merge(tally));
        sum
    }

    /// Returns the number of answered requests.
    pub(crate) fn completed(&self) -> u64 {
        self.tallies.iter().map(|tally| tally.completed).sum()
    }

    /// Whether a connection was tried but none was ever made.
    pub(crate) fn is_refused(&self) -> bool {
        let tally = &self.tallies[self.first];
        tally.connects == 0 && tally.failures_of(FailureKind::Connect) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tallies_add_up() {
        let mut one = Tally::default();
        one.complete(Some(204), 10);
        one.complete(Some(999), 30);
        one.count_failure(FailureKind::Reset);
        one.failed += 4;
        let mut both = one.clone();
        both.merge(&one);
        assert_eq!((both.completed, both.failed), (4, 8));
        assert_eq!(both.classes(), [2, 0, 2, 0, 0, 0]);
        assert_eq!(both.statuses(), BTreeMap::from([(204, 2), (999, 2)]));
        assert_eq!(
            (both.failures_of(FailureKind::Reset), both.failures_of(FailureKind::Connect)),
            (2, 0)
        );
        assert_eq!((both.latency.total(), both.latency.largest()), (4, 30));
    }

    #[test]
    fn each_kind_is_counted_at_its_own_index() {
        for (place, (failure, _)) in FailureKind::ALL.iter().enumerate() {
            assert_eq!(*failure as usize, place);
        }
    }
}
