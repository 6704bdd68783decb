//! The requests of a client and the responses to them.

use crate::exchange::Answer;
use crate::pending::PendingRequest;
use crate::plan::ClientKind;
use crate::tally::{FailureKind, TallyByUrl};

/// The account of one client. Times are nanoseconds since the start of the run.
#[derive(Debug)]
pub(crate) struct Account {
    /// The index of the client's class in the plan.
    pub(crate) class: usize,
    pub(crate) kind: ClientKind,
    pub(crate) asked: u64,
    pub(crate) tallies: TallyByUrl,
    pub(crate) last_response_ns: u64,
    /// The time since which the oldest pending request could have been served.
    pub(crate) waiting_ns: u64,
}

impl Account {
    /// Creates the account of a client of class number `class`. `urls` is the number of URLs; a client with a
    /// single URL requests the URL at index `first`.
    pub(crate) fn new(class: usize, kind: ClientKind, urls: usize, first: usize) -> Self {
        let tallies = TallyByUrl::new(urls, first);
        Self { class, kind, asked: 0, tallies, last_response_ns: 0, waiting_ns: 0 }
    }

    /// Counts a response. Returns its latency.
    pub(crate) fn complete(&mut self, answer: &Answer, now_ns: u64) -> u64 {
        let Answer { request, status, is_encoded, .. } = answer;
        let latency_ns = now_ns.saturating_sub(request.due_ns);
        let tally = self.tallies.of_mut(request.url);
        tally.complete(*status, latency_ns);
        tally.encoded += u64::from(*is_encoded);
        (self.last_response_ns, self.waiting_ns) = (now_ns, now_ns);
        latency_ns
    }

    /// Counts a request that is sent again.
    pub(crate) fn retry(&mut self, request: Option<PendingRequest>) {
        request.into_iter().for_each(|request| self.tallies.of_mut(request.url).retried += 1);
    }

    /// Forgets the counts of the warm-up.
    pub(crate) fn clear(&mut self) {
        self.tallies.clear();
    }

    /// Counts a request that was lost while its connection continues.
    pub(crate) fn lose(&mut self, request: PendingRequest, failure: FailureKind, now_ns: u64) {
        let tally = self.tallies.of_mut(request.url);
        tally.count_failure(failure);
        tally.failed += 1;
        (self.last_response_ns, self.waiting_ns) = (now_ns, now_ns);
    }

    /// Counts the failure of a connection, and all requests lost with it.
    pub(crate) fn fail(&mut self, failure: FailureKind, pending: &[PendingRequest], now_ns: u64) {
        match pending.first() {
            Some(oldest) if failure != FailureKind::Connect => self.tallies.of_mut(oldest.url),
            _ => self.tallies.of_client(),
        }
        .count_failure(failure);
        pending.iter().for_each(|request| self.tallies.of_mut(request.url).failed += 1);
        self.last_response_ns = now_ns;
    }

    /// Counts received bytes.
    pub(crate) fn receive(&mut self, url: Option<usize>, bytes: usize) {
        let tally = match url {
            Some(url) => self.tallies.of_mut(url),
            None => self.tallies.of_client(),
        };
        tally.bytes += bytes as u64;
    }
}
