//! The counters of each worker: a row in memory that all workers share.
//!
//! Each worker adds to its own row. Readers do not stop writers, so two numbers may be from slightly different moments.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use std::time::{SystemTime, UNIX_EPOCH};

use thruway_sys::shared_memory::Anonymous;

use super::adding::AddMode;
use super::clients::{self, ServedRequest};
use super::{histogram, slowest};

const PID: usize = 0;
/// The number of processes that have had the row.
const STARTS: usize = 1;
/// When the current process entered, in seconds since 1970.
const STARTED_AT: usize = 2;
const THREADS: usize = 3;
const BUSY_THREADS: usize = 4;
const REQUESTS: usize = 5;
/// Responses by the first digit of their status, 1 to 5.
const STATUSES: usize = 6;
const ABORTED: usize = STATUSES + 5;
/// Threads that compute in the application or wait for the interpreter lock.
const COMPUTING_THREADS: usize = ABORTED + 1;
/// Requests that wait in fibers.
const WAITING_FIBERS: usize = ABORTED + 2;
/// Waiting requests in fibers whose bodies have begun.
const STREAMING_FIBERS: usize = ABORTED + 3;
const HISTOGRAMS: usize = 16;
const CLIENTS: usize = HISTOGRAMS + TIMES * histogram::WORDS;
const SLOWEST: usize = CLIENTS + clients::WORDS;
const ROW_WORDS: usize = (SLOWEST + slowest::WORDS).next_multiple_of(8);

/// The number of kinds of times.
pub(super) const TIMES: usize = 6;

/// A kind of time that is recorded in a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Time {
    /// From a ready request to its turn.
    Queue,
    /// From the time in `X-Request-Start` to the request's turn.
    FromProxy,
    /// From a request's turn to the end of its response.
    Request,
    /// A call of the application.
    Application,
    /// A wait for the interpreter lock.
    LockWait,
    /// A pause for the garbage collector.
    Collection,
}

/// All rows.
#[derive(Debug)]
pub(crate) struct MetricsTable {
    words: Anonymous,
    /// The hasher of clients' names, which is the same in all workers.
    hasher: RandomState,
}

/// The writer of one worker's row. The engine's counts are written with its lock held, and Ruby's reports with the
/// interpreter lock held. So at most one thread of a process writes a number at a time.
#[derive(Debug, Clone)]
pub struct WorkerMetrics {
    table: Arc<MetricsTable>,
    index: usize,
    /// The position of this process among those that have had the row.
    start: u64,
}

/// The reader of one worker's row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counts<'a>(&'a [AtomicU64]);

/// A finished request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndedRequest<'a> {
    pub(crate) now_us: u64,
    pub(crate) took_us: u64,
    pub(crate) waited_us: u64,
    pub(crate) status: u16,
    /// The hash of the client's name, and the name.
    pub(crate) client: (u64, &'a [u8]),
    /// Method and path.
    pub(crate) target: &'a [u8],
}

impl MetricsTable {
    pub(crate) fn new(workers: usize) -> io::Result<Self> {
        Ok(Self { words: Anonymous::new(workers * ROW_WORDS)?, hasher: RandomState::new() })
    }

    pub(super) fn len(&self) -> usize {
        self.words.len() / ROW_WORDS
    }

    pub(super) fn row(&self, index: usize) -> Counts<'_> {
        Counts(&self.words[index * ROW_WORDS..(index + 1) * ROW_WORDS])
    }
}

impl WorkerMetrics {
    /// Takes over the row of worker `index` for the current process.
    pub(crate) fn enter(table: Arc<MetricsTable>, index: usize) -> Self {
        let start = table.row(index).0[STARTS].fetch_add(1, Ordering::Relaxed) + 1;
        let metrics = Self { table, index, start };
        metrics.set(PID, std::process::id().into());
        metrics.set(STARTED_AT, unix_seconds());
        for gauge in [BUSY_THREADS, COMPUTING_THREADS, WAITING_FIBERS, STREAMING_FIBERS] {
            metrics.set(gauge, 0);
        }
        metrics
    }

    /// Records a time.
    pub fn record(&self, time: Time, us: u64) {
        histogram::record(self.table.row(self.index).histogram(time), us, self.adding());
    }

    /// Sets the number of threads that could serve.
    pub fn set_threads(&self, threads: u32) {
        self.set(THREADS, threads.into());
    }

    /// Sets the number of threads in the application.
    pub fn set_busy_threads(&self, threads: u32) {
        self.set(BUSY_THREADS, threads.into());
    }

    /// Sets the number of threads that compute in the application.
    pub fn set_computing_threads(&self, threads: u32) {
        self.set(COMPUTING_THREADS, threads.into());
    }

    /// Sets the number of requests that wait in fibers, and of those among them whose bodies have begun.
    pub fn set_fibers(&self, waiting: u32, streaming: u32) {
        self.set(WAITING_FIBERS, waiting.into());
        self.set(STREAMING_FIBERS, streaming.into());
    }

    /// Counts a request that has its turn.
    pub(crate) fn count_request(&self) {
        self.add(REQUESTS, 1);
    }

    /// Counts a request whose response is complete.
    pub(crate) fn count_completed(&self, ended: EndedRequest<'_>) {
        let EndedRequest { now_us, took_us, waited_us, status, client: (hash, name), target } =
            ended;
        self.count_response(status);
        self.record(Time::Request, took_us);
        let row = self.table.row(self.index).0;
        let served = ServedRequest { hash, name, served_us: took_us, waited_us };
        clients::note(&row[CLIENTS..SLOWEST], now_us, served, self.adding());
        slowest::note(
            &row[SLOWEST..][..slowest::WORDS],
            now_us,
            [took_us, waited_us],
            status,
            target,
        );
    }

    /// Counts a response that was sent.
    pub(crate) fn count_response(&self, status: u16) {
        if let 1..=5 = status / 100 {
            self.add(STATUSES + usize::from(status / 100) - 1, 1);
        }
    }

    /// Counts a connection that ended before its response was complete.
    pub(crate) fn count_aborted(&self) {
        self.add(ABORTED, 1);
    }

    /// The hash of a client's name.
    pub(crate) fn hash(&self, name: &[u8]) -> u64 {
        self.table.hasher.hash_one(name)
    }

    pub(crate) fn table(&self) -> &MetricsTable {
        &self.table
    }

    /// The mode of additions: alone, unless another process has entered the row since.
    fn adding(&self) -> AddMode {
        let is_last = self.table.row(self.index).starts() == self.start;
        if is_last { AddMode::Alone } else { AddMode::Beside }
    }

    fn add(&self, at: usize, count: u64) {
        self.adding().add(&self.table.row(self.index).0[at], count);
    }

    fn set(&self, at: usize, value: u64) {
        self.table.row(self.index).0[at].store(value, Ordering::Relaxed);
    }
}

impl<'a> Counts<'a> {
    pub(super) fn histogram(self, time: Time) -> &'a [AtomicU64] {
        &self.0[HISTOGRAMS + time as usize * histogram::WORDS..][..histogram::WORDS]
    }

    pub(super) fn clients(self) -> &'a [AtomicU64] {
        &self.0[CLIENTS..SLOWEST]
    }

    pub(super) fn slowest(self) -> &'a [AtomicU64] {
        &self.0[SLOWEST..][..slowest::WORDS]
    }

    pub(super) fn pid(self) -> u64 {
        self.at(PID)
    }

    pub(super) fn starts(self) -> u64 {
        self.at(STARTS)
    }

    /// Returns when the current process entered, in seconds since 1970.
    pub(super) fn started_at(self) -> u64 {
        self.at(STARTED_AT)
    }

    pub(super) fn threads(self) -> u64 {
        self.at(THREADS)
    }

    pub(super) fn busy_threads(self) -> u64 {
        self.at(BUSY_THREADS)
    }

    pub(super) fn computing_threads(self) -> u64 {
        self.at(COMPUTING_THREADS)
    }

    pub(super) fn waiting_fibers(self) -> u64 {
        self.at(WAITING_FIBERS)
    }

    pub(super) fn streaming_fibers(self) -> u64 {
        self.at(STREAMING_FIBERS)
    }

    pub(super) fn requests(self) -> u64 {
        self.at(REQUESTS)
    }

    pub(super) fn statuses(self) -> [u64; 5] {
        std::array::from_fn(|class| self.at(STATUSES + class))
    }

    pub(super) fn aborted(self) -> u64 {
        self.at(ABORTED)
    }

    fn at(self, at: usize) -> u64 {
        self.0[at].load(Ordering::Relaxed)
    }
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_outlives_its_worker() {
        let table = Arc::new(MetricsTable::new(2).unwrap());
        for _ in 0..2 {
            let worker = WorkerMetrics::enter(Arc::clone(&table), 1);
            worker.count_request();
            worker.set_busy_threads(1);
            let client = (worker.hash(b"one"), &b"one"[..]);
            let target = b"GET /";
            let times = (9, 40, 2);
            let (now_us, took_us, waited_us) = times;
            worker.count_completed(EndedRequest {
                now_us,
                took_us,
                waited_us,
                status: 503,
                client,
                target,
            });
            worker.count_aborted();
        }
        let row = table.row(1);
        assert_eq!((row.requests(), row.aborted(), row.starts()), (2, 2, 2));
        assert_eq!(row.statuses(), [0, 0, 0, 0, 2]);
        assert_eq!(row.pid(), u64::from(std::process::id()));
        assert_eq!(table.row(0).requests(), 0, "each has its own");
        let replaced = WorkerMetrics::enter(Arc::clone(&table), 1);
        let entered = WorkerMetrics::enter(Arc::clone(&table), 1);
        replaced.count_request();
        entered.count_request();
        assert_eq!(table.row(1).requests(), 4, "a replaced worker counts on");
        assert_eq!(table.row(1).busy_threads(), 0, "a dead worker's threads are gone");
        entered.set_threads(5);
        assert_eq!(table.row(1).threads(), 5);
    }
}
