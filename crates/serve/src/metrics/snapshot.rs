//! A snapshot of all rows.

use super::clients::Clients;
use super::histogram::Histogram;
use super::slowest::{self, SlowRequest};
use super::table::{Counts, MetricsTable, TIMES, Time};

/// The maximum number of slow requests in a snapshot.
const SLOWEST_MAX: usize = 10;

/// The current load of a worker, which its row of counters does not contain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CurrentLoad {
    /// Whether the worker takes connections.
    pub(crate) is_serving: bool,
    /// Whether the worker ends as soon as its requests are done.
    pub(crate) is_draining: bool,
    pub(crate) connections: u64,
    /// Connections with a recent turn.
    pub(crate) active: u64,
    /// Requests that wait for their turn.
    pub(crate) waiting: u64,
}

/// The figures of one worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WorkerFigures {
    pub(super) index: usize,
    pub(super) current_load: CurrentLoad,
    pub(super) pid: u64,
    pub(super) starts: u64,
    pub(super) started_at: u64,
    pub(super) threads: u64,
    pub(super) busy_threads: u64,
    pub(super) inside: RequestsInside,
    pub(super) requests: u64,
    pub(super) statuses: [u64; 5],
    pub(super) aborted: u64,
    /// The resident memory of the process; none if another worker of the same process has reported it.
    pub(super) memory_bytes: Option<u64>,
}

/// The requests in the application, by their activity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct RequestsInside {
    /// Requests that compute or wait for the interpreter lock.
    pub(super) computing: u64,
    /// Requests that wait for anything else, in a thread or in a fiber, before or between the pieces of their bodies.
    pub(super) waiting: u64,
    /// Requests in fibers that have sent a part of their bodies.
    pub(super) streaming: u64,
}

impl RequestsInside {
    fn of(row: Counts<'_>) -> Self {
        // The numbers may be from slightly different moments.
        let computing = row.computing_threads().min(row.busy_threads());
        let waiting = row.busy_threads() - computing + row.waiting_fibers();
        Self { computing, waiting, streaming: row.streaming_fibers() }
    }
}

/// The figures of the whole server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    pub(super) workers: Vec<WorkerFigures>,
    pub(super) times: [Histogram; TIMES],
    pub(super) clients: Clients,
    pub(super) slowest: Vec<SlowRequest>,
    /// The figures of the response cache, if there is one.
    pub(crate) cache: Option<thruway_cache::Totals>,
    /// The certificates that an agent keeps.
    pub(crate) certificates: Vec<thruway_tls::CertificateReport>,
}

impl Snapshot {
    /// Reads all rows that ever had a worker. `current_load` returns the current load of each.
    pub(crate) fn read(
        table: &MetricsTable,
        now_us: u64,
        current_load: impl Fn(usize) -> CurrentLoad,
    ) -> Self {
        let mut snapshot = Self::default();
        let rows = (0..table.len()).map(|index| (index, table.row(index)));
        for (index, row) in rows.filter(|(_, row)| row.starts() > 0) {
            snapshot.add(index, row, current_load(index));
            snapshot.clients.add(row.clients(), now_us);
            slowest::read(row.slowest(), now_us, &mut snapshot.slowest);
        }
        snapshot.slowest.sort_by_key(|request| std::cmp::Reverse(request.took_us));
        snapshot.slowest.truncate(SLOWEST_MAX);
        snapshot
    }

    pub(super) fn time(&self, time: Time) -> &Histogram {
        &self.times[time as usize]
    }

    /// The sum over all workers.
    pub(super) fn total(&self, of: impl Fn(&WorkerFigures) -> u64) -> u64 {
        self.workers.iter().map(of).sum()
    }

    /// The number of workers that take connections.
    pub(crate) fn booted(&self) -> usize {
        self.workers.iter().filter(|worker| worker.current_load.is_serving).count()
    }

    fn add(&mut self, index: usize, row: Counts<'_>, current_load: CurrentLoad) {
        let pid = row.pid();
        let is_alive = current_load.is_serving || current_load.is_draining;
        let is_listed = self.workers.iter().any(|worker| worker.pid == pid);
        self.workers.push(WorkerFigures {
            index,
            current_load,
            pid,
            starts: row.starts(),
            started_at: row.started_at(),
            threads: row.threads(),
            busy_threads: if is_alive { row.busy_threads() } else { 0 },
            inside: if is_alive { RequestsInside::of(row) } else { RequestsInside::default() },
            requests: row.requests(),
            statuses: row.statuses(),
            aborted: row.aborted(),
            memory_bytes: if is_alive && !is_listed { memory_bytes(pid) } else { None },
        });
        for time in Time::ALL {
            self.times[time as usize].add(row.histogram(time));
        }
    }
}

impl Time {
    pub(super) const ALL: [Self; TIMES] = [
        Self::Queue,
        Self::FromProxy,
        Self::Request,
        Self::Application,
        Self::LockWait,
        Self::Collection,
    ];
}

impl WorkerFigures {
    /// The number of threads that could serve a request now.
    pub(super) fn free_threads(&self) -> u64 {
        self.threads.saturating_sub(self.busy_threads)
    }
}

/// The resident memory of a process, as the system counts it.
fn memory_bytes(pid: u64) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use super::super::table::{EndedRequest, WorkerMetrics};
    use super::*;

    /// Two workers, the second one dead, and three requests.
    pub(crate) fn example() -> Snapshot {
        let table = Arc::new(MetricsTable::new(3).unwrap());
        let workers = [0, 1].map(|index| {
            let worker = WorkerMetrics::enter(Arc::clone(&table), index);
            worker.set_threads(5);
            worker.set_busy_threads(1);
            worker.set_computing_threads(1);
            worker.set_fibers(4, 3);
            worker
        });
        for (at, name, status) in [(0, "192.0.2.1", 200), (0, "192.0.2.1", 404), (1, "a\"b", 500)] {
            let worker = &workers[at];
            worker.count_request();
            worker.record(Time::Queue, 300);
            worker.record(Time::Application, 7_000);
            let client = (worker.hash(name.as_bytes()), name.as_bytes());
            let (now_us, took_us, waited_us) = (1, 7_100, 900);
            let target = b"GET /a\\b";
            worker.count_completed(EndedRequest {
                now_us,
                took_us,
                waited_us,
                status,
                client,
                target,
            });
        }
        Snapshot::read(&table, 1, |index| CurrentLoad {
            is_serving: index == 0,
            connections: 7,
            active: 3,
            waiting: 2,
            ..CurrentLoad::default()
        })
    }

    #[test]
    fn rows_that_never_had_a_worker_are_left_out() {
        let snapshot = example();
        assert_eq!((snapshot.workers.len(), snapshot.booted()), (2, 1));
        assert_eq!(snapshot.total(|worker| worker.requests), 3);
        assert_eq!(snapshot.time(Time::Queue).count(), 3);
        assert_eq!(snapshot.workers[0].free_threads(), 4);
        assert_eq!(snapshot.workers[1].busy_threads, 0, "it is dead");
        assert!(snapshot.workers[0].memory_bytes.is_some_and(|bytes| bytes > 4096));
        assert_eq!(snapshot.slowest.len(), 3);
    }
}
