//! The thread roles of `thruway-roles`, with the engine's bell, the worker's figures and the system's clock.

use std::cell::Cell;
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;

use thruway_roles::{Activity, Bell, LoadObserver, SharedRoles, UNSURE};
use thruway_serve::{Board, Time, WorkerMetrics, monotonic_us};

thread_local! {
    static ACTIVITY: Activity = const { Activity::new() };
    /// The time since which the calling thread waits for the interpreter lock; zero if it does not wait.
    static WANTED_US: Cell<u64> = const { Cell::new(0) };
}

/// The shared part of the roles: all that threads without the interpreter lock see of them.
pub(super) type Roles = SharedRoles<StandbyBell, Figures>;

/// The bell of the engine that wakes the standby.
pub(super) struct StandbyBell(pub(super) thruway_serve::Bell);

impl Bell for StandbyBell {
    fn ring(&self) {
        self.0.ring();
    }

    fn wait(&self, timeout: Option<Duration>) {
        self.0.wait(timeout);
    }

    fn silence(&self) {
        self.0.silence();
    }
}

/// The bell of the herald. It takes no lock, so a forked child may ring it, too.
#[derive(Default)]
pub(super) struct HeraldBell(OnceLock<Thread>);

impl HeraldBell {
    /// The bell rings for `herald` from now on.
    pub(super) fn set(&self, herald: &Thread) {
        self.0.get_or_init(|| herald.clone());
    }
}

impl Bell for HeraldBell {
    fn ring(&self) {
        if let Some(herald) = self.0.get() {
            herald.unpark();
        }
    }

    fn wait(&self, timeout: Option<Duration>) {
        match timeout {
            Some(timeout) => std::thread::park_timeout(timeout),
            None => std::thread::park(),
        }
    }

    fn silence(&self) {
        std::thread::park_timeout(Duration::ZERO);
    }
}

/// The requests of one server for the interpreter lock.
pub(super) type LockRequests = Arc<thruway_roles::LockRequests<HeraldBell>>;

/// The figures of a worker that siblings and metrics see, and the herald as their reader.
pub(super) struct Figures {
    threads_max: u32,
    board: Option<Board>,
    metrics: Option<WorkerMetrics>,
    /// `None` where requests run in threads, and before Ruby 3.3.
    lock_requests: Option<LockRequests>,
}

impl Figures {
    pub(super) fn new(
        threads_max: u32,
        board: Option<Board>,
        metrics: Option<WorkerMetrics>,
        lock_requests: Option<LockRequests>,
    ) -> Self {
        Self { threads_max, board, metrics, lock_requests }
    }

    /// Whether calls of the application, and waits for the interpreter lock, are measured.
    pub(super) fn is_measured(&self) -> bool {
        self.metrics.is_some()
    }

    /// Sets the number of threads that can serve: those that exist, or that start whenever they are needed.
    pub(super) fn set_threads(&self, threads: u32) {
        if let Some(metrics) = &self.metrics {
            metrics.set_threads(threads);
        }
    }

    /// Sets how many requests wait in fibers, and how many of these are in the midst of a body.
    pub(super) fn set_fibers(&self, waiting: usize, streaming: usize) {
        let count = |count| u32::try_from(count).unwrap_or(u32::MAX);
        if let Some(metrics) = &self.metrics {
            metrics.set_fibers(count(waiting), count(streaming));
        }
    }

    /// Records the duration of a call of the application.
    pub(super) fn note_call(&self, took_us: u64) {
        if let Some(metrics) = &self.metrics {
            metrics.record(Time::Application, took_us);
        }
    }

    /// Records that the calling thread wants the interpreter lock.
    pub(super) fn note_wanted(&self) {
        if ACTIVITY.with(Activity::is_in_request) {
            WANTED_US.set(monotonic_us());
        }
    }

    /// Records that the calling thread has acquired the interpreter lock.
    pub(super) fn note_got(&self) {
        let wanted_us = WANTED_US.take();
        if wanted_us > 0
            && let Some(metrics) = &self.metrics
        {
            metrics.record(Time::LockWait, monotonic_us().saturating_sub(wanted_us));
        }
    }
}

impl LoadObserver for Figures {
    fn computing(&self, threads: u32) {
        if let Some(metrics) = &self.metrics {
            // Where that would have to be looked up, the leader counts.
            metrics.set_computing_threads(if threads == UNSURE { 1 } else { threads });
        }
        if let Some(board) = &self.board {
            board.set_computing(threads);
        }
    }

    fn in_application(&self, threads: u32) {
        if let Some(board) = &self.board {
            board.set_free_threads(self.threads_max.saturating_sub(threads));
        }
        if let Some(metrics) = &self.metrics {
            metrics.set_busy_threads(threads);
        }
    }

    fn begins_to_compute(&self) {
        if let Some(requests) = &self.lock_requests {
            requests.note_computing();
        }
    }
}

/// The activity of the calling thread.
pub(super) fn with_activity<T>(work: impl FnOnce(&Activity) -> T) -> T {
    ACTIVITY.with(work)
}

/// The calling thread releases the interpreter lock, or wants it back. No Ruby object is used.
pub(super) fn note_suspension(roles: &Roles, is_suspended: bool) {
    with_activity(|activity| {
        roles.note_suspension(is_suspended, activity, thread_number, monotonic_us);
    });
}

/// The system's number of the calling thread.
pub(super) fn thread_number() -> u32 {
    // SAFETY: `gettid` has no preconditions and cannot fail.
    unsafe { libc::gettid() }.unsigned_abs()
}
