//! The numbers of threads in the application, and of computing threads among them.
//!
//! Ruby 3.2 and later report when a thread releases the interpreter lock and when the thread wants it back, so each
//! thread counts itself. Earlier Rubies report nothing: the leader counts as computing until it is found blocked, and a
//! thread that was superseded while computing counts until it is back.

use std::cell::Cell;

use crate::sync::{AtomicBool, AtomicU32, Ordering};

/// The number of computing threads if determining it has a cost.
pub const UNSURE: u32 = u32::MAX;

/// Receives the counts as they change, also from threads without the interpreter lock.
pub trait LoadObserver {
    /// Receives the number of threads that compute or wait for the interpreter lock; [`UNSURE`] if the number is not
    /// known.
    fn computing(&self, threads: u32);

    /// Receives the number of threads in the application.
    fn in_application(&self, threads: u32);

    /// A thread begins to compute beside the leader, or again after a wait. It is counted already.
    fn begins_to_compute(&self) {}
}

impl LoadObserver for () {
    fn computing(&self, _threads: u32) {}

    fn in_application(&self, _threads: u32) {}
}

/// The activity of one thread, for that thread alone.
#[derive(Debug, Default)]
pub struct Activity(Cell<ActivityState>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ActivityState {
    /// The thread has no request.
    #[default]
    Nothing,
    /// The thread holds the interpreter lock in the application, or waits for the lock.
    Computing,
    /// The thread waits in the application.
    Waiting,
}

impl Activity {
    /// The activity of a thread without a request.
    #[must_use]
    pub const fn new() -> Self {
        Self(Cell::new(ActivityState::Nothing))
    }

    /// Whether the thread has a request.
    #[must_use]
    pub fn is_in_request(&self) -> bool {
        self.0.get() != ActivityState::Nothing
    }
}

/// The counts of one server.
#[derive(Debug)]
pub struct Load<O> {
    observer: O,
    in_application: AtomicU32,
    computing: AtomicU32,
    /// Threads that lost the lead while they computed, where Ruby does not report releases of the lock. Each counts
    /// until it returns to the engine.
    superseded: AtomicU32,
    /// The number of `superseded` threads that had been leaders: whether they still compute is unknown. The other
    /// superseded threads run one turn of a fiber beside a leader, and are known to compute.
    superseded_leaders: AtomicU32,
    /// Whether Ruby reports when a thread releases the lock.
    is_reported: AtomicBool,
}

impl<O: LoadObserver> Load<O> {
    /// The counts of a server whose threads are all free.
    pub fn new(observer: O) -> Self {
        observer.in_application(0);
        Self {
            observer,
            in_application: AtomicU32::new(0),
            computing: AtomicU32::new(0),
            superseded: AtomicU32::new(0),
            superseded_leaders: AtomicU32::new(0),
            is_reported: AtomicBool::new(false),
        }
    }

    /// The receiver of the counts.
    pub fn observer(&self) -> &O {
        &self.observer
    }

    /// Records that Ruby reports suspensions from now on.
    pub fn set_reported(&self) {
        self.is_reported.store(true, Ordering::Relaxed);
    }

    /// Whether Ruby reports suspensions.
    pub fn is_reported(&self) -> bool {
        self.is_reported.load(Ordering::Relaxed)
    }

    /// Counts the calling thread, which leads and is about to call the application.
    pub(crate) fn enter(&self, thread: &Activity) {
        self.observer.in_application(self.in_application.fetch_add(1, Ordering::SeqCst) + 1);
        if self.is_reported() {
            self.begin(thread);
        } else {
            self.computing.store(1 + self.superseded(), Ordering::SeqCst);
            self.observer.computing(UNSURE);
        }
    }

    /// Records the return of the calling thread from the application. `leads` is false if another thread has taken the
    /// lead since.
    pub(crate) fn leave(&self, thread: &Activity, leads: bool) {
        self.observer.in_application(self.in_application.fetch_sub(1, Ordering::SeqCst) - 1);
        if self.is_reported() {
            self.note(thread, false);
            thread.0.set(ActivityState::Nothing);
        } else if leads {
            self.set_computing(0);
        }
    }

    /// Counts the calling thread, which does not lead and continues a request of its own in the application.
    pub(crate) fn enter_beside(&self, thread: &Activity) {
        self.observer.in_application(self.in_application.fetch_add(1, Ordering::SeqCst) + 1);
        if self.is_reported() {
            thread.0.set(ActivityState::Waiting);
            self.note(thread, true);
        } else {
            self.superseded.fetch_add(1, Ordering::SeqCst);
            self.computing.fetch_add(1, Ordering::SeqCst);
            self.report_superseded();
        }
    }

    /// Records the return from [`enter_beside`](Self::enter_beside).
    pub(crate) fn leave_beside(&self, thread: &Activity) {
        self.leave(thread, false);
        self.forget_beside();
    }

    /// Whether it is unknown if the leader computes or waits.
    pub fn is_unsure(&self) -> bool {
        !self.is_reported() && self.computing() > self.superseded()
    }

    /// Records that the leader was found blocked.
    pub(crate) fn note_blocked(&self) {
        if !self.is_reported() {
            self.set_computing(0);
        }
    }

    /// Records that another thread leads from now on, although the leader computes.
    pub(crate) fn note_superseded(&self) {
        if !self.is_reported() {
            self.superseded.fetch_add(1, Ordering::SeqCst);
            self.set_computing(0);
            // This count is raised last and lowered first: no thread ever counts as waiting outside the application.
            self.superseded_leaders.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Records the return of a superseded leader. The new leader may or may not be in the application.
    pub(crate) fn forget_superseded(&self) {
        if !self.is_reported() {
            self.superseded_leaders.fetch_sub(1, Ordering::SeqCst);
            self.forget_beside();
        }
    }

    fn forget_beside(&self) {
        if !self.is_reported() {
            self.superseded.fetch_sub(1, Ordering::SeqCst);
            self.computing.fetch_sub(1, Ordering::SeqCst);
            self.report_superseded();
        }
    }

    /// Reports the computing threads to the observer, where Ruby does not report releases of the lock.
    fn report_superseded(&self) {
        self.observer.computing(if self.is_unsure() { UNSURE } else { self.superseded() });
    }

    /// Records that the calling thread holds or wants the interpreter lock (true), or has released the lock.
    pub(crate) fn note(&self, thread: &Activity, is_computing: bool) {
        match (thread.0.get(), is_computing) {
            (ActivityState::Waiting, true) => {
                self.begin(thread);
                self.observer.begins_to_compute();
            }
            (ActivityState::Computing, false) => {
                thread.0.set(ActivityState::Waiting);
                self.observer.computing(self.computing.fetch_sub(1, Ordering::SeqCst) - 1);
            }
            _ => {}
        }
    }

    fn begin(&self, thread: &Activity) {
        thread.0.set(ActivityState::Computing);
        self.observer.computing(self.computing.fetch_add(1, Ordering::SeqCst) + 1);
    }

    /// The number of threads in the application that hold the lock or wait for it.
    pub fn computing(&self) -> u32 {
        self.computing.load(Ordering::SeqCst)
    }

    /// The number of threads in the application that wait for anything but the lock, including superseded leaders,
    /// which may or may not wait.
    pub(crate) fn waiting(&self) -> u32 {
        self.count_waiting(self.computing())
    }

    /// The number of waiting threads, including a leader that may or may not wait.
    pub(crate) fn maybe_waiting(&self) -> u32 {
        self.count_waiting(if self.is_unsure() { self.superseded() } else { self.computing() })
    }

    fn count_waiting(&self, computing: u32) -> u32 {
        let computing = computing.saturating_sub(self.superseded_leaders.load(Ordering::SeqCst));
        self.in_application.load(Ordering::SeqCst).saturating_sub(computing)
    }

    fn superseded(&self) -> u32 {
        self.superseded.load(Ordering::SeqCst)
    }

    /// Sets the number of computing threads besides the superseded ones.
    fn set_computing(&self, threads: u32) {
        let threads = threads + self.superseded();
        self.computing.store(threads, Ordering::SeqCst);
        self.observer.computing(threads);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a test in one exploration, outside which the atomics do not work.
    fn check(test: impl Fn() + Send + Sync + 'static) {
        shuttle::check_random(test, 1);
    }

    #[test]
    fn a_thread_counts_while_it_computes_in_the_application() {
        check(|| {
            let (load, thread) = (Load::new(()), Activity::new());
            load.set_reported();
            load.note(&thread, true);
            assert_eq!(load.computing(), 0, "it is in no request");
            load.enter(&thread);
            assert_eq!((load.computing(), load.waiting()), (1, 0));
            load.note(&thread, true);
            assert_eq!(load.computing(), 1, "it asks for the lock that it has");
            load.note(&thread, false);
            load.note(&thread, false);
            assert_eq!((load.computing(), load.waiting()), (0, 1));
            load.note(&thread, true);
            load.leave(&thread, true);
            load.note(&thread, false);
            assert_eq!((load.computing(), load.waiting()), (0, 0));
        });
    }

    #[test]
    fn an_unreported_leader_computes_until_it_is_found_blocked() {
        check(|| {
            let (load, thread) = (Load::new(()), Activity::new());
            load.enter(&thread);
            load.note(&thread, false);
            assert_eq!((load.computing(), load.maybe_waiting()), (1, 1));
            load.note_blocked();
            assert_eq!((load.computing(), load.waiting()), (0, 1));
            load.leave(&thread, false);
            load.enter(&thread);
            load.leave(&thread, true);
            assert_eq!(load.computing(), 0);
        });
    }

    #[test]
    fn a_thread_beside_the_leader_counts_until_it_is_back() {
        for is_reported in [false, true] {
            check(move || {
                let (load, leader, thread) = (Load::new(()), Activity::new(), Activity::new());
                if is_reported {
                    load.set_reported();
                }
                load.enter(&leader);
                load.enter_beside(&thread);
                assert_eq!((load.computing(), load.waiting()), (2, 0));
                load.leave(&leader, true);
                assert_eq!((load.computing(), load.is_unsure()), (1, false));
                load.leave_beside(&thread);
                assert_eq!((load.computing(), load.waiting()), (0, 0));
            });
        }
    }

    #[test]
    fn an_unreported_superseded_thread_computes_until_it_is_back() {
        check(|| {
            let (load, thread) = (Load::new(()), Activity::new());
            load.enter(&thread);
            assert_eq!((load.waiting(), load.maybe_waiting()), (0, 1));
            load.note_superseded();
            assert_eq!((load.computing(), load.is_unsure()), (1, false));
            assert_eq!(load.waiting(), 1, "it may have begun to wait");
            load.enter(&thread);
            assert_eq!((load.waiting(), load.maybe_waiting()), (1, 2));
            assert_eq!((load.computing(), load.is_unsure()), (2, true));
            load.note_blocked();
            assert_eq!((load.computing(), load.is_unsure()), (1, false));
            load.leave(&thread, true);
            assert_eq!(load.computing(), 1);
            load.enter(&thread);
            load.forget_superseded();
            load.leave(&thread, false);
            assert_eq!((load.computing(), load.is_unsure()), (1, true), "the new leader computes");
            assert_eq!((load.waiting(), load.maybe_waiting()), (0, 1));
            load.leave(&thread, true);
            assert_eq!((load.computing(), load.waiting()), (0, 0));
        });
    }
}
