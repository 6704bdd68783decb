//! The results of a run. Latencies are nanoseconds from when a request was due to its last byte.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::broadcast::Broadcasts;
use crate::client::Client;
use crate::failures::Failures;
use crate::latency::{Latency, per_second};
use crate::plan::{ClientKind, Plan, WeightedRequest};
use crate::tally::{FailureKind, Tally};
use crate::timeline::TimelineRow;
use crate::{Histogram, is_starved, jain};

/// The results of a run: in total, by class, by URL, and by connection.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The version of this format: it grows when a field goes, or means something else.
    pub version: u32,
    /// The duration of the run, in seconds.
    pub seconds: f64,
    /// The sum of all connections. Its fairness is that of the least fair class.
    pub total: GroupReport,
    /// Each class of clients, in the plan's order.
    pub classes: Vec<GroupReport>,
    /// Each URL, in the plan's order.
    pub urls: Vec<UrlReport>,
    /// Each connection, class by class.
    pub connections: Vec<ConnectionReport>,
    /// Broadcasts, if the plan has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broadcasts: Option<BroadcastReport>,
    /// The results second by second.
    pub timeline: Vec<TimelineRow>,
    /// The reasons of failures, as the system or the server gives them.
    pub failures: Vec<FailureReport>,
    /// The latencies of all answered requests.
    #[serde(skip)]
    pub histogram: Histogram,
    /// The error of the last failed connect.
    pub connect_error: Option<String>,
    /// The last failure of TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_error: Option<String>,
}

/// A reason of failures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FailureReport {
    /// The kind of failure: one of the names in a group's `errors`.
    pub kind: &'static str,
    /// The reason.
    pub reason: String,
    /// The number of failures with this reason.
    pub count: u64,
}

/// The version of [`Report`].
const VERSION: u32 = 1;

/// The results of broadcasts. Each client's copies count as its requests.
#[derive(Debug, Clone, Serialize)]
pub struct BroadcastReport {
    /// The number of broadcasts sent.
    pub sent: u64,
    /// The number of broadcasts that reached every client.
    pub whole: u64,
    /// `whole`, per second.
    pub whole_per_second: f64,
    /// The time from when a broadcast was due until the last client had it.
    pub latency: Latency,
}

/// The results of a group of connections.
#[derive(Debug, Clone, Serialize)]
pub struct GroupReport {
    /// The name of the kind of clients, or `total`.
    pub name: &'static str,
    /// The path of the URL, if the clients request only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The number of connections.
    pub connections: u64,
    /// Requests answered in full, whatever the status.
    pub requests: u64,
    /// `requests`, per second.
    pub requests_per_second: f64,
    /// Bytes received per second, including heads.
    pub bytes_per_second: f64,
    /// Requests that were lost because of `errors`.
    pub failed: u64,
    /// The number of connections made.
    pub connects: u64,
    /// Latencies of answered requests.
    pub latency: Latency,
    /// The fairness among connections.
    pub fairness: Fairness,
    /// The fairness among all streams, if connections have several and always use all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streams: Option<StreamReport>,
    /// Responses by status class (`2xx`); classes without responses are left out.
    pub status: BTreeMap<&'static str, u64>,
    /// Responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Responses whose body has a content coding, such as gzip.
    pub encoded: u64,
    /// Requests that were sent again, because the server had closed a kept connection.
    pub retried: u64,
    /// Errors by kind; kinds without errors are left out.
    pub errors: BTreeMap<&'static str, u64>,
}

/// The results of one URL, for all clients.
#[derive(Debug, Clone, Serialize)]
pub struct UrlReport {
    /// The path of the URL.
    pub url: String,
    /// The weight of the URL in the plan.
    pub weight: u32,
    /// Requests answered in full, whatever the status.
    pub requests: u64,
    /// `requests`, per second.
    pub requests_per_second: f64,
    /// Bytes received per second, including heads.
    pub bytes_per_second: f64,
    /// Requests that were lost.
    pub failed: u64,
    /// Latencies of answered requests.
    pub latency: Latency,
    /// Jain's index of the URL's answered requests over the clients of a class; that of the least fair class.
    pub index: Option<f64>,
    /// Responses by status class (`2xx`); classes without responses are left out.
    pub status: BTreeMap<&'static str, u64>,
    /// Responses by status.
    pub statuses: BTreeMap<u16, u64>,
}

/// The fairness among connections.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Fairness {
    /// Jain's index of answered requests; `None` if no client received a response or no class is judged.
    pub index: Option<f64>,
    /// The number of connections that asked and received nothing, or less than a tenth of their class's mean.
    pub starved: u64,
    /// The number of requests that were pending or due at the end of the run.
    pub pending: u64,
    /// How long the oldest of them had waited.
    pub oldest_pending_ns: u64,
}

/// The fairness among streams. Over HTTP/2 each stream is a client that asks again and again.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct StreamReport {
    /// The number of streams of a connection.
    pub each: u64,
    /// Jain's index of the streams' responses.
    pub index: Option<f64>,
    /// The number of streams without a response, or with less than a tenth of the mean.
    pub starved: u64,
}

/// The results of one connection.
#[derive(Debug, Clone, Serialize)]
pub struct ConnectionReport {
    /// The name of the kind of the connection's client.
    pub class: &'static str,
    /// The path of the URL, if the client requests only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Requests answered in full.
    pub requests: u64,
    /// Requests that were lost.
    pub failed: u64,
    /// The number of times the connection was made.
    pub connects: u64,
    /// Latencies of answered requests.
    pub latency: Latency,
    /// Whether the connection received nothing, or less than a tenth of its class's mean.
    pub starved: bool,
    /// The number of requests that were pending or due at the end of the run.
    pub pending: u64,
    /// How long the oldest of them had waited.
    pub oldest_pending_ns: u64,
}

/// The end of a run.
pub(crate) struct Outcome {
    /// The measured time, without the warm-up.
    pub(crate) elapsed: Duration,
    /// The end, since the start of the warm-up.
    pub(crate) end_ns: u64,
    pub(crate) failures: Failures,
    pub(crate) broadcasts: Option<Broadcasts>,
    pub(crate) timeline: Vec<TimelineRow>,
}

/// Creates the report. `clients` must be ordered by class.
pub(crate) fn report(plan: &Plan, clients: &[Client], outcome: &Outcome) -> Report {
    let Outcome { elapsed, end_ns, failures, broadcasts, timeline } = outcome;
    let elapsed = RunTime { counted: *elapsed, end_ns: *end_ns };
    let classes = clients.chunk_by(|one, next| one.account().class == next.account().class);
    let classes: Vec<_> = classes.map(|class| Group::new(plan, class, elapsed)).collect();
    let connections = classes.iter().flat_map(Group::connections).collect();
    let judged = classes.iter().filter(|class| class.kind().is_judged());
    let all = Group::new(plan, clients, elapsed);
    let total = GroupReport {
        fairness: Fairness::worst(judged.map(Group::fairness)),
        url: None,
        ..all.report("total")
    };
    let failure = |(kind, reason, count): (_, &str, _)| FailureReport {
        kind,
        reason: reason.to_owned(),
        count,
    };
    Report {
        version: VERSION,
        seconds: elapsed.counted.as_secs_f64(),
        total,
        urls: (0..plan.urls.len()).map(|url| url_report(url, &classes)).collect(),
        classes: classes.iter().map(|class| class.report(class.kind().name())).collect(),
        connections,
        broadcasts: broadcasts.as_ref().map(|all| BroadcastReport::new(all, elapsed.counted)),
        timeline: timeline.clone(),
        failures: failures.iter().map(failure).collect(),
        histogram: all.tally.latency,
        connect_error: failures.connect().map(str::to_owned),
        tls_error: failures.tls().map(str::to_owned),
    }
}

/// Sums up the results of a URL over all classes.
fn url_report(url: usize, classes: &[Group<'_>]) -> UrlReport {
    let mut tally = Tally::default();
    let clients = classes.iter().flat_map(|class| class.clients);
    clients.for_each(|client| tally.merge(client.account().tallies.of(url)));
    let judged = classes.iter().filter(|class| class.kind().is_judged() && class.asks(url));
    let index = |class: &Group<'_>| {
        let clients = class.clients.iter().filter(|client| is_judged(client));
        jain(clients.map(|client| client.account().tallies.of(url).completed))
    };
    let (plan, elapsed) = (classes[0].plan, classes[0].elapsed.counted);
    UrlReport {
        url: name(&plan.urls[url]),
        weight: plan.urls[url].weight,
        requests: tally.completed,
        requests_per_second: per_second(tally.completed, elapsed),
        bytes_per_second: per_second(tally.bytes, elapsed),
        failed: tally.failed,
        latency: Latency::of(&tally.latency),
        index: judged.filter_map(index).min_by(f64::total_cmp),
        status: occurred(STATUS_CLASSES.into_iter().zip(tally.classes())),
        statuses: tally.statuses(),
    }
}

/// The path of a URL, and how many others count with it.
fn name(url: &WeightedRequest) -> String {
    let path = url.request.path();
    match url.others.len() {
        0 => path.to_owned(),
        others => format!("{path} and {others} more"),
    }
}

/// How long a run took.
#[derive(Debug, Clone, Copy)]
struct RunTime {
    /// The measured time, without the warm-up.
    counted: Duration,
    /// The end, since the start of the warm-up.
    end_ns: u64,
}

/// Clients that are reported together.
struct Group<'a> {
    plan: &'a Plan,
    clients: &'a [Client],
    elapsed: RunTime,
    tally: Tally,
}

impl<'a> Group<'a> {
    fn new(plan: &'a Plan, clients: &'a [Client], elapsed: RunTime) -> Self {
        let mut tally = Tally::default();
        clients.iter().for_each(|client| tally.merge(&client.account().tallies.sum()));
        Self { plan, clients, elapsed, tally }
    }

    /// The kind of a class.
    fn kind(&self) -> ClientKind {
        self.clients[0].account().kind
    }

    /// The URL, if the class requests only one.
    fn url(&self) -> Option<usize> {
        self.plan.classes[self.clients[0].account().class].url
    }

    /// The path of the URL, if the class requests only one.
    fn path(&self) -> Option<String> {
        self.url().map(|url| name(&self.plan.urls[url]))
    }

    /// Whether a class requests the URL, alone or besides others.
    fn asks(&self, url: usize) -> bool {
        self.url().is_none_or(|only| only == url)
    }

    fn report(&self, name: &'static str) -> GroupReport {
        GroupReport {
            name,
            url: self.path(),
            connections: self.clients.len() as u64,
            requests: self.tally.completed,
            requests_per_second: per_second(self.tally.completed, self.elapsed.counted),
            bytes_per_second: per_second(self.tally.bytes, self.elapsed.counted),
            failed: self.tally.failed,
            connects: self.tally.connects,
            latency: Latency::of(&self.tally.latency),
            fairness: self.fairness(),
            streams: self.streams(name),
            status: occurred(STATUS_CLASSES.into_iter().zip(self.tally.classes())),
            statuses: self.tally.statuses(),
            encoded: self.tally.encoded,
            retried: self.tally.retried,
            errors: occurred(
                FailureKind::ALL
                    .iter()
                    .map(|(failure, name)| (*name, self.tally.failures_of(*failure))),
            ),
        }
    }

    /// Returns the fairness within a class.
    fn fairness(&self) -> Fairness {
        let judged = self.clients.iter().filter(|client| is_judged(client));
        let connections: Vec<_> = self.connections().collect();
        Fairness {
            index: jain(judged.map(|client| client.account().tallies.completed())),
            starved: connections.iter().filter(|one| one.starved).count() as u64,
            pending: connections.iter().map(|one| one.pending).sum(),
            oldest_pending_ns: connections
                .iter()
                .map(|one| one.oldest_pending_ns)
                .max()
                .unwrap_or(0),
        }
    }

    /// Returns the fairness among the streams of a class. Streams of different classes are not compared.
    #[expect(clippy::cast_precision_loss, reason = "2^53 requests are never reached")]
    fn streams(&self, name: &str) -> Option<StreamReport> {
        let is_always = matches!(self.kind(), ClientKind::Greedy | ClientKind::Pipelined);
        let each = self.clients[0].served().len();
        let is_one_class = name != "total" || self.plan.classes.len() == 1;
        (is_always && each > 1 && is_one_class).then(|| {
            let served = || self.clients.iter().flat_map(|client| client.served().iter().copied());
            let mean = served().sum::<u64>() as f64 / served().count() as f64;
            let starved = served().filter(|share| is_starved(*share, mean)).count() as u64;
            StreamReport { each: each as u64, index: jain(served()), starved }
        })
    }

    #[expect(clippy::cast_precision_loss, reason = "2^53 requests are never reached")]
    fn connections(&self) -> impl Iterator<Item = ConnectionReport> {
        let mean = self.tally.completed as f64 / self.clients.len().max(1) as f64;
        let now_ns = self.elapsed.end_ns;
        let path = self.path();
        self.clients
            .iter()
            .map(move |client| ConnectionReport::new(client, path.clone(), mean, now_ns))
    }
}

const STATUS_CLASSES: [&str; 6] = ["other", "1xx", "2xx", "3xx", "4xx", "5xx"];

fn occurred(counts: impl Iterator<Item = (&'static str, u64)>) -> BTreeMap<&'static str, u64> {
    counts.filter(|(_, count)| *count > 0).collect()
}

impl ConnectionReport {
    fn new(client: &Client, url: Option<String>, mean: f64, now_ns: u64) -> Self {
        let tally = client.account().tallies.sum();
        let (pending, oldest_pending_ns) = client.waiting(now_ns);
        Self {
            class: client.account().kind.name(),
            url,
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

/// Whether a client can expect an equal share. A client without requests cannot.
fn is_judged(client: &Client) -> bool {
    client.account().kind.is_judged() && client.account().asked > 0
}

impl BroadcastReport {
    fn new(all: &Broadcasts, elapsed: Duration) -> Self {
        let latency = Latency::of(&all.latency);
        let whole_per_second = per_second(all.whole, elapsed);
        Self { sent: all.sent(), whole: all.whole, whole_per_second, latency }
    }
}

impl Fairness {
    /// Returns the lowest index, with the sums of the other values.
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
