//! What workers know of each other: a row each, in memory that they share.
//!
//! Each worker writes its own row; others only add to it what they have just sent there. Numbers may be
//! a moment old, and nothing depends on their agreeing with each other.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use thruway_sys::shared_memory::Anonymous;

/// Words of a row: two cache lines, so that workers do not slow each other down.
const ROW_WORDS: usize = 16;

const STATE: usize = 0;
const CONNECTIONS: usize = 1;
const ACTIVE: usize = 2;
const TURNS_PER_SECOND: usize = 3;
const IDLE_PERMILLE: usize = 4;
const WAITING: usize = 5;

/// Nobody is there.
const VACANT: u64 = 0;
/// It takes connections.
const SERVING: u64 = 1;
/// It serves those that it has.
const DRAINING: u64 = 2;
/// It would take connections, but whoever serves them is busy with one request for long.
const ABSENT: u64 = 3;

/// All rows.
#[derive(Debug)]
pub(super) struct LoadTable {
    words: Anonymous,
}

/// One worker's row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row<'a> {
    words: &'a [AtomicU64],
}

/// A row as it is read at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Load {
    /// Whether it takes connections.
    pub(super) is_serving: bool,
    /// Open connections.
    pub(super) connections: u64,
    /// Connections that have had a turn lately.
    pub(super) active: u64,
    /// Turns of all of them in a second.
    pub(super) turns_per_second: u64,
    /// The part of its time in which it had nothing to do, in thousandths.
    pub(super) idle_permille: u64,
}

impl LoadTable {
    pub(super) fn new(workers: usize) -> io::Result<Self> {
        Ok(Self { words: Anonymous::new(workers * ROW_WORDS)? })
    }

    pub(super) fn row(&self, index: usize) -> Row<'_> {
        Row { words: &self.words[index * ROW_WORDS..(index + 1) * ROW_WORDS] }
    }

    pub(super) fn len(&self) -> usize {
        self.words.len() / ROW_WORDS
    }
}

impl Row<'_> {
    pub(super) fn load(self) -> Load {
        Load {
            is_serving: self.at(STATE) == SERVING,
            connections: self.at(CONNECTIONS),
            active: self.at(ACTIVE),
            turns_per_second: self.at(TURNS_PER_SECOND),
            idle_permille: self.at(IDLE_PERMILLE),
        }
    }

    /// The worker is there, with nothing to do yet.
    pub(super) fn enter(self) {
        for at in [CONNECTIONS, ACTIVE, TURNS_PER_SECOND, WAITING] {
            self.set(at, 0);
        }
        self.set(IDLE_PERMILLE, 1000);
        self.set(STATE, SERVING);
    }

    pub(super) fn drain(self) {
        self.set(STATE, DRAINING);
    }

    /// The worker is busy with one request, or back from it. One that drains or is dead stays so.
    pub(super) fn set_absent(self, is_absent: bool) {
        let (from, to) = if is_absent { (SERVING, ABSENT) } else { (ABSENT, SERVING) };
        if self.at(STATE) == from {
            self.set(STATE, to);
        }
    }

    pub(super) fn vacate(self) {
        self.set(STATE, VACANT);
        self.set(WAITING, 0);
    }

    pub(super) fn set_connections(self, connections: u64, active: u64) {
        self.set(CONNECTIONS, connections);
        self.set(ACTIVE, active);
    }

    pub(super) fn set_service(self, turns_per_second: u64, idle_permille: u64) {
        self.set(TURNS_PER_SECOND, turns_per_second);
        self.set(IDLE_PERMILLE, idle_permille);
    }

    /// Whether the worker has nothing to do.
    pub(super) fn set_waiting(self, is_waiting: bool) {
        self.set(WAITING, u64::from(is_waiting));
    }

    /// Whether the worker says that it has nothing to do.
    pub(super) fn is_waiting(self) -> bool {
        self.at(WAITING) == 1
    }

    /// Takes a worker's word that it has nothing to do: true for one only of those who ask.
    pub(super) fn claim_waiting(self) -> bool {
        let (acquire, relaxed) = (Ordering::AcqRel, Ordering::Relaxed);
        self.words[WAITING].compare_exchange(1, 2, acquire, relaxed).is_ok()
    }

    /// A connection is on its way there.
    pub(super) fn expect_connection(self, is_active: bool) {
        self.words[CONNECTIONS].fetch_add(1, Ordering::Relaxed);
        self.words[ACTIVE].fetch_add(u64::from(is_active), Ordering::Relaxed);
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
    use super::*;

    #[test]
    fn a_worker_that_enters_is_seen_and_one_that_left_is_not() {
        let table = LoadTable::new(2).unwrap();
        assert_eq!(table.len(), 2);
        assert!(!table.row(1).load().is_serving);
        table.row(1).enter();
        table.row(1).set_connections(4, 3);
        table.row(1).set_service(50, 200);
        let load = table.row(1).load();
        assert!(load.is_serving && !table.row(1).is_waiting());
        assert_eq!((load.active, load.turns_per_second, load.idle_permille), (3, 50, 200));
        table.row(1).set_absent(true);
        assert!(!table.row(1).load().is_serving);
        table.row(1).set_absent(false);
        assert!(table.row(1).load().is_serving);
        table.row(1).drain();
        table.row(1).set_absent(false);
        assert!(!table.row(1).load().is_serving, "who drains is not back for that");
        assert_eq!(table.row(0).load().active, 0, "each has its own row");
    }

    #[test]
    fn only_one_is_told_that_a_worker_waits() {
        let table = LoadTable::new(1).unwrap();
        let row = table.row(0);
        assert!(!row.claim_waiting());
        row.set_waiting(true);
        assert!(row.claim_waiting());
        assert!(!row.claim_waiting());
    }
}
