//! What a worker's threads are doing, as its siblings see it.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use thruway_serve::workers::UNSURE;
use thruway_serve::{Board, Time, WorkerMetrics, monotonic_us};

thread_local! {
    static DOING: Cell<Doing> = const { Cell::new(Doing::Nothing) };
    /// Since when the calling thread waits for the interpreter lock; zero if it does not.
    static WANTED_US: Cell<u64> = const { Cell::new(0) };
}

/// What the calling thread does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// It is in no request.
    Nothing,
    /// It holds the interpreter lock in the application, or waits for it.
    Computing,
    /// It waits in the application.
    Waiting,
}

/// How many threads are in the application, and how many of them compute.
pub(super) struct Load {
    threads: u32,
    board: Option<Board>,
    metrics: Option<WorkerMetrics>,
    in_application: AtomicU32,
    computing: AtomicU32,
    /// How many of these were superseded while they computed, where Ruby tells nothing: each counts until it is back.
    superseded: AtomicU32,
    /// Whether Ruby tells when a thread releases the lock. Otherwise the leader counts as computing until
    /// it is found to be blocked.
    is_told: AtomicBool,
}

impl Load {
    pub(super) fn new(
        threads: usize,
        board: Option<Board>,
        metrics: Option<WorkerMetrics>,
    ) -> Self {
        let threads = u32::try_from(threads).unwrap_or(u32::MAX);
        if let Some(metrics) = &metrics {
            metrics.set_threads(threads);
        }
        let load = Self {
            threads,
            board,
            metrics,
            in_application: AtomicU32::new(0),
            computing: AtomicU32::new(0),
            superseded: AtomicU32::new(0),
            is_told: AtomicBool::new(false),
        };
        load.tell_free_threads(0);
        load
    }

    pub(super) fn set_told(&self) {
        self.is_told.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_told(&self) -> bool {
        self.is_told.load(Ordering::Relaxed)
    }

    /// The calling thread, which leads, is about to call the application.
    pub(super) fn enter(&self) {
        self.tell_free_threads(self.in_application.fetch_add(1, Ordering::Relaxed) + 1);
        if self.is_told() {
            DOING.set(Doing::Waiting);
            self.note(true);
        } else {
            self.computing.store(1 + self.superseded(), Ordering::SeqCst);
            self.tell_computing(UNSURE);
        }
    }

    /// It is back. `leads` unless another thread has taken the lead meanwhile.
    pub(super) fn leave(&self, leads: bool) {
        self.tell_free_threads(self.in_application.fetch_sub(1, Ordering::Relaxed) - 1);
        if self.is_told() {
            self.note(false);
            DOING.set(Doing::Nothing);
        } else if leads {
            self.set_computing(0);
        }
    }

    /// Whether the leader computes is not known.
    pub(super) fn is_unsure(&self) -> bool {
        !self.is_told() && self.computing() > self.superseded()
    }

    /// The leader is blocked.
    pub(super) fn note_blocked(&self) {
        if !self.is_told() {
            self.set_computing(0);
        }
    }

    /// Another thread leads from now on, though the leader computes.
    pub(super) fn note_superseded(&self) {
        if !self.is_told() {
            self.superseded.fetch_add(1, Ordering::SeqCst);
            self.set_computing(0);
        }
    }

    /// A superseded thread is back. The leader may be in the application or not.
    pub(super) fn forget_superseded(&self) {
        if !self.is_told() {
            self.superseded.fetch_sub(1, Ordering::SeqCst);
            self.computing.fetch_sub(1, Ordering::SeqCst);
            self.tell_computing(if self.is_unsure() { UNSURE } else { self.superseded() });
        }
    }

    fn superseded(&self) -> u32 {
        self.superseded.load(Ordering::SeqCst)
    }

    /// The calling thread waits for the lock, or has released it. Nothing of Ruby's is touched.
    pub(super) fn note(&self, is_computing: bool) {
        match (DOING.get(), is_computing) {
            (Doing::Waiting, true) => {
                DOING.set(Doing::Computing);
                self.tell_computing(self.computing.fetch_add(1, Ordering::SeqCst) + 1);
            }
            (Doing::Computing, false) => {
                DOING.set(Doing::Waiting);
                self.tell_computing(self.computing.fetch_sub(1, Ordering::SeqCst) - 1);
            }
            _ => {}
        }
    }

    /// Threads in the application that hold the lock, or wait for it.
    pub(super) fn computing(&self) -> u32 {
        self.computing.load(Ordering::SeqCst)
    }

    /// A call of the application has taken so long.
    pub(super) fn note_call(&self, took_us: u64) {
        if let Some(metrics) = &self.metrics {
            metrics.record(Time::Application, took_us);
        }
    }

    /// Whether waits for the interpreter lock are measured.
    pub(super) fn measures_waits(&self) -> bool {
        self.metrics.is_some()
    }

    /// The calling thread wants the interpreter lock.
    pub(super) fn note_wanted(&self) {
        if DOING.get() != Doing::Nothing {
            WANTED_US.set(monotonic_us());
        }
    }

    /// The calling thread has the interpreter lock.
    pub(super) fn note_got(&self) {
        let wanted_us = WANTED_US.take();
        if wanted_us > 0
            && let Some(metrics) = &self.metrics
        {
            metrics.record(Time::LockWait, monotonic_us().saturating_sub(wanted_us));
        }
    }

    /// Sets how many threads compute beside those that were superseded.
    fn set_computing(&self, threads: u32) {
        let threads = threads + self.superseded();
        self.computing.store(threads, Ordering::SeqCst);
        self.tell_computing(threads);
    }

    fn tell_computing(&self, threads: u32) {
        if let Some(board) = &self.board {
            board.set_computing(threads);
        }
    }

    fn tell_free_threads(&self, in_application: u32) {
        if let Some(board) = &self.board {
            board.set_free_threads(self.threads.saturating_sub(in_application));
        }
        if let Some(metrics) = &self.metrics {
            metrics.set_busy_threads(in_application);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_counts_while_it_computes_in_the_application() {
        let load = Load::new(2, None, None);
        load.set_told();
        load.note(true);
        assert_eq!(load.computing(), 0, "it is in no request");
        load.enter();
        assert_eq!(load.computing(), 1);
        load.note(true);
        assert_eq!(load.computing(), 1, "it asks for the lock that it has");
        load.note(false);
        load.note(false);
        assert_eq!(load.computing(), 0);
        load.note(true);
        load.leave(true);
        load.note(false);
        assert_eq!(load.computing(), 0);
    }

    #[test]
    fn where_ruby_does_not_tell_the_leader_computes_until_it_is_found_blocked() {
        let load = Load::new(2, None, None);
        load.enter();
        load.note(false);
        assert_eq!(load.computing(), 1);
        load.note_blocked();
        assert_eq!(load.computing(), 0);
        load.leave(false);
        load.enter();
        load.leave(true);
        assert_eq!(load.computing(), 0);
    }

    #[test]
    fn where_ruby_does_not_tell_a_superseded_thread_computes_until_it_is_back() {
        let load = Load::new(3, None, None);
        load.enter();
        load.note_superseded();
        assert_eq!((load.computing(), load.is_unsure()), (1, false));
        load.enter();
        assert_eq!((load.computing(), load.is_unsure()), (2, true));
        load.note_blocked();
        assert_eq!((load.computing(), load.is_unsure()), (1, false));
        load.leave(true);
        assert_eq!(load.computing(), 1);
        load.enter();
        load.forget_superseded();
        load.leave(false);
        assert_eq!((load.computing(), load.is_unsure()), (1, true), "the new leader computes");
        load.leave(true);
        assert_eq!(load.computing(), 0);
    }
}
