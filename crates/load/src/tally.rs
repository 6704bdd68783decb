//! What was counted: of one connection, of a class, or of all.

use crate::Histogram;

/// How a request or a connection failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// No connection was made: refused, unreachable, no such socket.
    Connect,
    /// The server closed with requests pending, before the first byte of a response.
    Unanswered,
    /// The server closed inside a response: a length that was not kept to, or a crash.
    Truncated,
    /// The server did not switch to WebSocket.
    Handshake,
    /// The bytes are no response in the protocol that is spoken.
    Malformed,
    /// Bytes that no request asked for: a response longer than its length, or one too many.
    Unasked,
    /// No response within the time that was allowed.
    TimedOut,
    /// The connection broke: reset, or worse.
    Reset,
    /// TLS failed: in its handshake as a rule.
    Tls,
}

impl Trouble {
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

/// Counts, which can be added up.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    /// Requests that were answered in full, whatever the status.
    pub(crate) completed: u64,
    /// Requests that will never be answered.
    pub(crate) failed: u64,
    /// Bytes received, heads included.
    pub(crate) bytes: u64,
    /// Connections made.
    pub(crate) connects: u64,
    /// Responses by the first digit of their status; 0 is anything beyond 5.
    pub(crate) classes: [u64; 6],
    troubles: [u64; Trouble::ALL.len()],
    /// Nanoseconds from when each answered request was due to its last byte.
    pub(crate) latency: Histogram,
}

impl Tally {
    /// Counts a response; over WebSocket it has no status.
    pub(crate) fn complete(&mut self, status: Option<u16>, latency_ns: u64) {
        self.completed += 1;
        self.latency.record(latency_ns);
        let Some(status) = status else { return };
        let class = usize::from(status / 100);
        self.classes[if class < self.classes.len() { class } else { 0 }] += 1;
    }

    /// Counts one trouble; the requests that it cost count by themselves.
    pub(crate) fn trouble(&mut self, trouble: Trouble) {
        self.troubles[trouble as usize] += 1;
    }

    pub(crate) fn troubles(&self, trouble: Trouble) -> u64 {
        self.troubles[trouble as usize]
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.completed += other.completed;
        self.failed += other.failed;
        self.bytes += other.bytes;
        self.connects += other.connects;
        add(&mut self.classes, &other.classes);
        add(&mut self.troubles, &other.troubles);
        self.latency.merge(&other.latency);
    }
}

/// What one client counted, by URL. What belongs to no request counts for the first of its URLs.
#[derive(Debug)]
pub(crate) struct TallyByUrl {
    /// In the plan's order.
    tallies: Vec<Tally>,
    first: usize,
}

impl TallyByUrl {
    /// Nothing counted yet for so many URLs; the client asks the `first` of them, and may ask others.
    pub(crate) fn new(urls: usize, first: usize) -> Self {
        Self { tallies: vec![Tally::default(); urls], first }
    }

    pub(crate) fn of(&self, url: usize) -> &Tally {
        &self.tallies[url]
    }

    pub(crate) fn of_mut(&mut self, url: usize) -> &mut Tally {
        &mut self.tallies[url]
    }

    /// Where that counts which belongs to no request.
    pub(crate) fn of_client(&mut self) -> &mut Tally {
        &mut self.tallies[self.first]
    }

    /// All URLs together.
    pub(crate) fn sum(&self) -> Tally {
        let mut sum = Tally::default();
        self.tallies.iter().for_each(|tally| sum.merge(tally));
        sum
    }

    /// How many requests were answered.
    pub(crate) fn completed(&self) -> u64 {
        self.tallies.iter().map(|tally| tally.completed).sum()
    }

    /// Whether a connection was tried, and none was ever made.
    pub(crate) fn is_refused(&self) -> bool {
        let tally = &self.tallies[self.first];
        tally.connects == 0 && tally.troubles(Trouble::Connect) > 0
    }
}

fn add(own: &mut [u64], others: &[u64]) {
    own.iter_mut().zip(others).for_each(|(own, other)| *own += other);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tallies_add_up() {
        let mut one = Tally::default();
        one.complete(Some(204), 10);
        one.complete(Some(999), 30);
        one.trouble(Trouble::Reset);
        one.failed += 4;
        let mut both = one.clone();
        both.merge(&one);
        assert_eq!((both.completed, both.failed), (4, 8));
        assert_eq!(both.classes, [2, 0, 2, 0, 0, 0]);
        assert_eq!((both.troubles(Trouble::Reset), both.troubles(Trouble::Connect)), (2, 0));
        assert_eq!((both.latency.total(), both.latency.largest()), (4, 30));
    }

    #[test]
    fn each_trouble_has_its_place() {
        for (place, (trouble, _)) in Trouble::ALL.iter().enumerate() {
            assert_eq!(*trouble as usize, place);
        }
    }
}
