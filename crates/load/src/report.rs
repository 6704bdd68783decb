//! What a run showed. Latencies are nanoseconds, from when a request was due to its last byte.

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::io::Errno;
use serde::Serialize;

use crate::client::Client;
use crate::plan::{ClientKind, nanoseconds};
use crate::tally::{Tally, Trouble};
use crate::{Histogram, is_starved, jain};

/// What a run showed, as a whole, by class, and by connection.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// How long the run took.
    pub seconds: f64,
    /// All connections together. Its fairness is that of the least fair class.
    pub total: GroupReport,
    /// Each class of clients, in the plan's order.
    pub classes: Vec<GroupReport>,
    /// Each connection, class by class.
    pub connections: Vec<ConnectionReport>,
    /// Why the last connection could not be made that could not.
    pub connect_error: Option<String>,
}

/// What a group of connections reached.
#[derive(Debug, Clone, Serialize)]
pub struct GroupReport {
    /// The name of their kind, or `total`.
    pub name: &'static str,
    /// How many there are.
    pub connections: u64,
    /// Requests that were answered in full, whatever the status.
    pub requests: u64,
    /// Those, a second.
    pub requests_per_second: f64,
    /// Bytes received, heads included, a second.
    pub bytes_per_second: f64,
    /// Requests that were lost: the sum of what the errors cost.
    pub failed: u64,
    /// Connections made.
    pub connects: u64,
    /// Of the answered requests.
    pub latency: Latency,
    /// How alike the connections fared.
    pub fairness: Fairness,
    /// Responses by status class (`2xx`); those that occurred.
    pub status: BTreeMap<&'static str, u64>,
    /// Errors by kind; those that occurred.
    pub errors: BTreeMap<&'static str, u64>,
}

/// Quantiles of latency, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "each is the quantile of its name")]
pub struct Latency {
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub max_ns: u64,
}

/// How alike connections fared.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Fairness {
    /// Jain's index of the answered requests; `None` where nobody got a response or no class is
    /// judged.
    pub index: Option<f64>,
    /// Connections that asked and were not answered, or less than a tenth as often as their class on
    /// average.
    pub starved: u64,
    /// Requests that were pending at the end of the run, or due.
    pub pending: u64,
    /// For how long the oldest of them had been.
    pub oldest_pending_ns: u64,
}

/// What one connection reached.
#[derive(Debug, Clone, Serialize)]
pub struct ConnectionReport {
    /// The name of its client's kind.
    pub class: &'static str,
    /// Requests that were answered in full.
    pub requests: u64,
    /// Requests that were lost.
    pub failed: u64,
    /// Times the connection was made.
    pub connects: u64,
    /// Of the answered requests.
    pub latency: Latency,
    /// Whether it got nothing, or less than a tenth of its class's mean.
    pub starved: bool,
    /// Requests that were pending at the end of the run, or due.
    pub pending: u64,
    /// For how long the oldest of them had been.
    pub oldest_pending_ns: u64,
}

/// Reports on clients that come class by class.
pub(crate) fn report(clients: &[Client], elapsed: Duration, refusal: Option<Errno>) -> Report {
    let classes = clients.chunk_by(|one, next| one.kind() == next.kind());
    let classes: Vec<_> = classes.map(|class| Group::new(class, elapsed)).collect();
    let connections = classes.iter().flat_map(Group::connections).collect();
    let judged = classes.iter().filter(|class| class.kind().is_judged());
    let total = GroupReport {
        fairness: Fairness::worst(judged.map(Group::fairness)),
        ..Group::new(clients, elapsed).report("total")
    };
    let classes = classes.iter().map(|class| class.report(class.kind().name())).collect();
    Report {
        seconds: elapsed.as_secs_f64(),
        total,
        classes,
        connections,
        connect_error: refusal.map(|errno| errno.to_string()),
    }
}

/// Clients that are reported together.
struct Group<'a> {
    clients: &'a [Client],
    elapsed: Duration,
    tally: Tally,
}

impl<'a> Group<'a> {
    fn new(clients: &'a [Client], elapsed: Duration) -> Self {
        let mut tally = Tally::default();
        clients.iter().for_each(|client| tally.merge(client.tally()));
        Self { clients, elapsed, tally }
    }

    /// The kind of a class.
    fn kind(&self) -> ClientKind {
        self.clients[0].kind()
    }

    #[expect(clippy::cast_precision_loss, reason = "2^53 requests or bytes are never reached")]
    fn report(&self, name: &'static str) -> GroupReport {
        let per_second = |count: u64| count as f64 / self.elapsed.as_secs_f64().max(1e-9);
        GroupReport {
            name,
            connections: self.clients.len() as u64,
            requests: self.tally.completed,
            requests_per_second: per_second(self.tally.completed),
            bytes_per_second: per_second(self.tally.bytes),
            failed: self.tally.failed,
            connects: self.tally.connects,
            latency: Latency::of(&self.tally.latency),
            fairness: self.fairness(),
            status: occurred(STATUS_CLASSES.into_iter().zip(self.tally.classes)),
            errors: occurred(
                Trouble::ALL.iter().map(|(trouble, name)| (*name, self.tally.troubles(*trouble))),
            ),
        }
    }

    /// How alike the clients of one class fared.
    fn fairness(&self) -> Fairness {
        let judged = self.clients.iter().filter(|client| is_judged(client));
        let connections: Vec<_> = self.connections().collect();
        Fairness {
            index: jain(judged.map(|client| client.tally().completed)),
            starved: connections.iter().filter(|one| one.starved).count() as u64,
            pending: connections.iter().map(|one| one.pending).sum(),
            oldest_pending_ns: connections
                .iter()
                .map(|one| one.oldest_pending_ns)
                .max()
                .unwrap_or(0),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "2^53 requests are never reached")]
    fn connections(&self) -> impl Iterator<Item = ConnectionReport> {
        let mean = self.tally.completed as f64 / self.clients.len().max(1) as f64;
        let now_ns = nanoseconds(self.elapsed);
        self.clients.iter().map(move |client| ConnectionReport::new(client, mean, now_ns))
    }
}

const STATUS_CLASSES: [&str; 6] = ["other", "1xx", "2xx", "3xx", "4xx", "5xx"];

fn occurred(counts: impl Iterator<Item = (&'static str, u64)>) -> BTreeMap<&'static str, u64> {
    counts.filter(|(_, count)| *count > 0).collect()
}

impl ConnectionReport {
    fn new(client: &Client, mean: f64, now_ns: u64) -> Self {
        let tally = client.tally();
        let (pending, oldest_pending_ns) = client.waiting(now_ns);
        Self {
            class: client.kind().name(),
            requests: tally.completed,
            failed: tally.failed,
            connects: tally.connects,
            latency: Latency::of(&tally.latency),
            starved: is_judged(client) && is_starved(tally.completed, mean),
            pending,
            oldest_pending_ns,
        }
    }
}

/// Whether it had a claim to an equal share: one that never came to ask had none.
fn is_judged(client: &Client) -> bool {
    client.kind().is_judged() && client.has_asked()
}

impl Latency {
    fn of(histogram: &Histogram) -> Self {
        Self {
            p50_ns: histogram.quantile(0.5),
            p90_ns: histogram.quantile(0.9),
            p99_ns: histogram.quantile(0.99),
            p999_ns: histogram.quantile(0.999),
            max_ns: histogram.largest(),
        }
    }
}

impl Fairness {
    /// The lowest index, and everything else added up.
    fn worst(classes: impl Iterator<Item = Self>) -> Self {
        let none = Self { index: None, starved: 0, pending: 0, oldest_pending_ns: 0 };
        classes.fold(none, |worst, class| Self {
            index: [worst.index, class.index].into_iter().flatten().min_by(f64::total_cmp),
            starved: worst.starved + class.starved,
            pending: worst.pending + class.pending,
            oldest_pending_ns: worst.oldest_pending_ns.max(class.oldest_pending_ns),
        })
    }
}
