//! The loads that workers know of each other, one row per worker in shared memory.
//!
//! Each worker writes its own row. Siblings write to the row only to count connections that they are about to send, to
//! ask for a request, and to record an untaken message. Numbers may be slightly out of date, and nothing depends on
//! their consistency with each other.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use thruway_sys::shared_memory::Anonymous;

use super::connection_count::ConnectionCount;
use super::untaken::UntakenMessage;
use crate::queue::policy::WorkerView;

/// The words of a row: two cache lines, so that workers do not slow each other down.
const ROW_WORDS: usize = 16;

const STATE: usize = 0;
/// The word of [`ConnectionCount`], which siblings write, too.
const CONNECTIONS: usize = 1;
const ACTIVE: usize = 2;
const TURNS_PER_SECOND: usize = 3;
const IDLE_PERMILLE: usize = 4;
const FREE_THREADS: usize = 5;
const COMPUTING: usize = 6;
const WAITING: usize = 7;
/// Siblings write this word, so it begins the row's second cache line.
const ASKED_BY: usize = 8;
const OLDEST_US: usize = 9;
const READY_US: usize = 10;
/// The word of [`UntakenMessage`], which siblings write, too.
const UNTAKEN_US: usize = 11;
const IN_FIBERS: usize = 12;
const SLICE_US: usize = 13;

/// The number of requests in fibers where they run in threads.
const IN_THREADS: u64 = u64::MAX;

/// No process has the row.
const VACANT: u64 = 0;
/// The worker takes connections.
const SERVING: u64 = 1;
/// The worker only serves the connections that it has.
const DRAINING: u64 = 2;

/// The view of a row without a process.
const VACANT_VIEW: WorkerView = WorkerView {
    is_serving: false,
    free_threads: 0,
    computing: 0,
    waiting: 0,
    oldest_us: u64::MAX,
    ready_us: u64::MAX,
    in_fibers: None,
    slice_us: 0,
};

/// All rows.
#[derive(Debug)]
pub(super) struct LoadTable {
    words: Anonymous,
}

/// One worker's row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoadRow<'a> {
    words: &'a [AtomicU64],
}

/// A snapshot of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Load {
    /// Whether the worker takes connections.
    pub(super) is_serving: bool,
    /// Open connections, and those on their way to the worker.
    pub(super) connections: u64,
    /// Connections with a recent turn.
    pub(super) active: u64,
    /// Turns per second of all connections.
    pub(super) turns_per_second: u64,
    /// The share of time without work, in thousandths.
    pub(super) idle_permille: u64,
}

impl LoadTable {
    pub(super) fn new(workers: usize) -> io::Result<Self> {
        Ok(Self { words: Anonymous::new(workers * ROW_WORDS)? })
    }

    pub(super) fn row(&self, index: usize) -> LoadRow<'_> {
        LoadRow { words: &self.words[index * ROW_WORDS..(index + 1) * ROW_WORDS] }
    }

    pub(super) fn len(&self) -> usize {
        self.words.len() / ROW_WORDS
    }

    /// Reads the view of every worker, for the policy.
    pub(super) fn read_views(&self, views: &mut Vec<WorkerView>, now_us: u64) {
        // A worker writes its own row, then reads the others': of two workers that do so at once, one sees the other's
        // row.
        fence(Ordering::SeqCst);
        views.clear();
        views.extend((0..self.len()).map(|index| self.row(index).view(now_us)));
    }

    /// Reads the load of every worker, to balance connections.
    pub(super) fn read_loads(&self, loads: &mut Vec<Load>, now_us: u64) {
        loads.clear();
        loads.extend((0..self.len()).map(|index| {
            let row = self.row(index);
            let load = row.load();
            Load { is_serving: load.is_serving && !row.untaken().is_overdue(now_us), ..load }
        }));
    }
}

impl LoadRow<'_> {
    pub(super) fn load(self) -> Load {
        Load {
            is_serving: self.at(STATE) == SERVING,
            connections: self.connections().total(),
            active: self.at(ACTIVE),
            turns_per_second: self.at(TURNS_PER_SECOND),
            idle_permille: self.at(IDLE_PERMILLE),
        }
    }

    fn view(self, now_us: u64) -> WorkerView {
        if self.is_vacant() {
            return VACANT_VIEW;
        }
        let small = |at| u32::try_from(self.at(at)).unwrap_or(u32::MAX);
        WorkerView {
            is_serving: self.at(STATE) == SERVING && !self.untaken().is_overdue(now_us),
            free_threads: small(FREE_THREADS),
            computing: small(COMPUTING),
            waiting: small(WAITING),
            oldest_us: self.at(OLDEST_US),
            ready_us: self.at(READY_US),
            in_fibers: u32::try_from(self.at(IN_FIBERS)).ok(),
            slice_us: self.at(SLICE_US),
        }
    }

    pub(super) fn is_draining(self) -> bool {
        self.at(STATE) == DRAINING
    }

    /// The number of waiting requests.
    pub(super) fn waiting(self) -> u64 {
        self.at(WAITING)
    }

    /// Marks the worker as serving, without work so far. The messages in the mailbox, and thus the connections on their
    /// way, are those of its predecessor.
    pub(super) fn enter(self) {
        self.connections().set_open(0);
        for at in [ACTIVE, TURNS_PER_SECOND, COMPUTING, WAITING, ASKED_BY, UNTAKEN_US, SLICE_US] {
            self.set(at, 0);
        }
        self.set(FREE_THREADS, 1);
        self.set(IDLE_PERMILLE, 1000);
        self.set(OLDEST_US, u64::MAX);
        self.set(IN_FIBERS, IN_THREADS);
        self.set(STATE, SERVING);
    }

    pub(super) fn drain(self) {
        self.set(STATE, DRAINING);
    }

    pub(super) fn is_vacant(self) -> bool {
        self.at(STATE) == VACANT
    }

    pub(super) fn vacate(self) {
        self.set(STATE, VACANT);
        self.set(WAITING, 0);
        self.set(OLDEST_US, u64::MAX);
        self.set(ASKED_BY, 0);
        self.set(UNTAKEN_US, 0);
    }

    pub(super) fn set_connections(self, connections: u64, active: u64) {
        self.connections().set_open(connections);
        self.set(ACTIVE, active);
    }

    pub(super) fn set_service(self, turns_per_second: u64, idle_permille: u64) {
        self.set(TURNS_PER_SECOND, turns_per_second);
        self.set(IDLE_PERMILLE, idle_permille);
    }

    /// Sets the number of threads that could serve and are not in the application.
    pub(super) fn set_free_threads(self, threads: u32) {
        self.set(FREE_THREADS, threads.into());
    }

    /// Sets the number of threads that hold the interpreter lock or wait for it.
    pub(super) fn set_computing(self, threads: u32) {
        self.set(COMPUTING, threads.into());
    }

    /// Sets the number of requests that run in fibers and began lately.
    pub(super) fn set_in_fibers(self, requests: u32) {
        self.set(IN_FIBERS, requests.into());
    }

    /// Sets the time at which the fiber that runs was continued; zero if none runs.
    pub(super) fn set_slice(self, since_us: u64) {
        self.set(SLICE_US, since_us);
    }

    /// Sets the number of waiting requests, the key of the next one, and the time at which it was ready.
    pub(super) fn set_waiting(self, requests: usize, oldest_us: u64, ready_us: u64) {
        self.set(WAITING, requests as u64);
        self.set(OLDEST_US, oldest_us);
        self.set(READY_US, ready_us);
    }

    /// Asks for the worker's oldest request on behalf of `asker`; false if another sibling has asked before.
    pub(super) fn ask(self, asker: usize) -> bool {
        let (acquire, relaxed) = (Ordering::AcqRel, Ordering::Relaxed);
        self.words[ASKED_BY].compare_exchange(0, asker as u64 + 1, acquire, relaxed).is_ok()
    }

    /// The sibling that has asked and still waits.
    pub(super) fn asker(self) -> Option<usize> {
        // Acquire: an asker that sees its own request cleared also sees that a message is expected.
        usize::try_from(self.words[ASKED_BY].load(Ordering::Acquire)).ok()?.checked_sub(1)
    }

    /// Lets the next sibling ask: the asker has its request or a refusal.
    pub(super) fn forget_asker(self) {
        self.words[ASKED_BY].store(0, Ordering::Release);
    }

    /// Counts an active connection that was sent to the worker, until the worker counts its connections.
    pub(super) fn add_active(self) {
        self.words[ACTIVE].fetch_add(1, Ordering::Relaxed);
    }

    /// The connections that are open in the worker or on their way.
    pub(crate) fn connections(&self) -> ConnectionCount<'_> {
        ConnectionCount { word: &self.words[CONNECTIONS] }
    }

    /// The time since which a message has been on its way to the worker.
    pub(crate) fn untaken(&self) -> UntakenMessage<'_> {
        UntakenMessage { since_us: &self.words[UNTAKEN_US] }
    }

    fn at(self, at: usize) -> u64 {
        self.words[at].load(Ordering::Relaxed)
    }

    fn set(self, at: usize, value: u64) {
        self.words[at].store(value, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::untaken::UNTAKEN_US_MAX;
    use super::*;

    #[test]
    fn a_worker_that_enters_is_seen_and_a_worker_that_left_is_not() {
        let table = LoadTable::new(2).unwrap();
        assert_eq!(table.len(), 2);
        assert!(!table.row(1).load().is_serving);
        table.row(1).enter();
        table.row(1).set_connections(4, 3);
        table.row(1).set_service(50, 200);
        let load = table.row(1).load();
        assert!(load.is_serving);
        assert_eq!((load.active, load.turns_per_second, load.idle_permille), (3, 50, 200));
        table.row(1).drain();
        assert!(!table.row(1).load().is_serving);
        assert_eq!(table.row(0).load().active, 0, "each has its own row");
    }

    #[test]
    fn siblings_see_what_waits_and_what_computes() {
        let table = LoadTable::new(2).unwrap();
        table.row(1).enter();
        let mut views = Vec::new();
        table.read_views(&mut views, 0);
        assert_eq!((views[1].waiting, views[1].oldest_us, views[1].free_threads), (0, u64::MAX, 1));
        table.row(1).set_free_threads(3);
        table.row(1).set_computing(2);
        table.row(1).set_waiting(7, 99, 100);
        table.read_views(&mut views, 0);
        let view = views[1];
        assert_eq!(
            (view.free_threads, view.computing, view.waiting, view.oldest_us),
            (3, 2, 7, 99)
        );
        assert_eq!(view.ready_us, 100);
        table.row(1).vacate();
        table.read_views(&mut views, 0);
        assert!(!views[1].is_serving && views[1].waiting == 0);
    }

    #[test]
    fn a_worker_that_takes_no_message_does_not_serve_until_it_does() {
        let table = LoadTable::new(1).unwrap();
        let row = table.row(0);
        row.enter();
        let is_serving = |now_us| {
            let (mut views, mut loads) = (Vec::new(), Vec::new());
            table.read_views(&mut views, now_us);
            table.read_loads(&mut loads, now_us);
            assert_eq!(views[0].is_serving, loads[0].is_serving);
            loads[0].is_serving
        };
        row.untaken().expect(1_000);
        row.untaken().expect(5_000);
        assert!(is_serving(900) && is_serving(1_000 + UNTAKEN_US_MAX));
        assert!(!is_serving(1_001 + UNTAKEN_US_MAX));
        assert!(row.load().is_serving, "it is there all the same");
        row.untaken().clear();
        assert!(is_serving(u64::MAX));
        row.untaken().expect(1_000);
        row.vacate();
        row.enter();
        assert!(is_serving(u64::MAX), "another process takes its place");
    }

    #[test]
    fn one_worker_at_a_time_asks() {
        let table = LoadTable::new(3).unwrap();
        assert_eq!(table.row(0).asker(), None);
        assert!(table.row(0).ask(2));
        assert!(!table.row(0).ask(1));
        assert_eq!(table.row(0).asker(), Some(2));
        table.row(0).forget_asker();
        assert_eq!(table.row(0).asker(), None);
        assert!(table.row(0).ask(1));
        assert_eq!(table.row(0).asker(), Some(1));
    }
}
