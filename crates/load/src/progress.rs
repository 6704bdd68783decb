//! The progress of a run.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::Histogram;
use crate::timeline::Interval;

/// The progress of one thread.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    /// The time since the start.
    pub(crate) elapsed: Duration,
    /// Whether the warm-up is over.
    pub(crate) is_warm: bool,
    /// The number of answered requests for each client whose fairness is judged.
    pub(crate) shares: Vec<u64>,
    /// The counts since the last snapshot.
    pub(crate) interval: Interval,
}

/// The progress of a run.
#[derive(Debug)]
pub struct Progress {
    /// The time since the start, with the warm-up.
    pub elapsed: Duration,
    /// Whether the warm-up is over.
    pub is_warm: bool,
    /// The number of answered requests for each connection whose fairness is judged.
    pub shares: Vec<u64>,
    /// The number of requests that were answered since the last progress.
    pub requests: u64,
    /// The number of those whose status is 4xx or 5xx.
    pub errors: u64,
    /// The number of requests that were lost since then.
    pub failed: u64,
    /// The latencies since then, in nanoseconds.
    pub latency: Histogram,
}

/// The last snapshots of the other threads, which the first thread collects.
#[derive(Debug, Default)]
pub(crate) struct Board(Mutex<Vec<Snapshot>>);

impl Board {
    pub(crate) fn new(threads: usize) -> Self {
        Self(Mutex::new(vec![Snapshot::default(); threads]))
    }

    /// Leaves the snapshot of a thread. Counts add up until they are collected.
    pub(crate) fn post(&self, thread: usize, snapshot: &Snapshot) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let posted = &mut all[thread];
        posted.elapsed = snapshot.elapsed;
        posted.is_warm = snapshot.is_warm;
        posted.shares.clone_from(&snapshot.shares);
        posted.interval.merge(&snapshot.interval);
    }

    /// Collects the figures that all threads have reported.
    pub(crate) fn collect(&self) -> Progress {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut interval = Interval::default();
        for snapshot in all.iter_mut() {
            interval.merge(&snapshot.interval);
            snapshot.interval.clear();
        }
        let longest = all.iter().map(|snapshot| snapshot.shares.len()).max().unwrap_or(0);
        // Clients were dealt to the threads in turn.
        let dealt = |place| all.iter().filter_map(move |one| one.shares.get(place).copied());
        Progress {
            elapsed: all[0].elapsed,
            is_warm: all[0].is_warm,
            shares: (0..longest).flat_map(dealt).collect(),
            requests: interval.requests,
            errors: interval.errors,
            failed: interval.failed,
            latency: interval.latency,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threads_of_a_run_are_added_up() {
        let board = Board::new(2);
        let snapshot = |shares: &[u64], requests| Snapshot {
            shares: shares.to_vec(),
            interval: Interval { requests, ..Interval::default() },
            ..Snapshot::default()
        };
        board.post(0, &snapshot(&[1, 3], 2));
        board.post(1, &snapshot(&[2], 5));
        board.post(1, &snapshot(&[4], 6));
        let progress = board.collect();
        assert_eq!((progress.requests, progress.shares), (13, vec![1, 4, 3]));
        assert_eq!(board.collect().requests, 0);
    }
}
