//! How many threads are in the application, and how many of these compute.
//!
//! Ruby 3.2 and later report when a thread releases the interpreter lock and when it wants it back, so that each thread
//! counts itself. Earlier Rubies report nothing: the leader counts as computing until it is found blocked, and a thread
//! that another one superseded while it computed counts until it is back.

use std::cell::Cell;

use crate::sync::{AtomicBool, AtomicU32, Ordering};

/// The number of computing threads where it would have to be looked up.
pub const UNSURE: u32 = u32::MAX;

/// Receives the counts as they change. It is called by threads without the interpreter lock, too.
pub trait LoadObserver {
    /// So many threads compute, or wait for the interpreter lock; [`UNSURE`] if that is not known.
    fn computing(&self, threads: u32);

    /// So many threads are in the application.
    fn in_application(&self, threads: u32);
}

impl LoadObserver for () {
    fn computing(&self, _threads: u32) {}

    fn in_application(&self, _threads: u32) {}
}

/// The activity of one thread. It belongs to that thread alone.
#[derive(Debug, Default)]
pub struct Activity(Cell<ActivityState>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ActivityState {
    /// It is in no request.
    #[default]
    Nothing,
    /// It holds the interpreter lock in the application, or waits for it.
    Computing,
    /// It waits in the application.
    Waiting,
}

impl Activity {
    /// A thread that is in no request.
    #[must_use]
    pub const fn new() -> Self {
        Self(Cell::new(ActivityState::Nothing))
    }

    /// Whether the thread is in a request.
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
    /// Threads that were superseded while they computed, where Ruby reports nothing: each counts until it is back.
    superseded: AtomicU32,
    /// The superseded threads that led: whether they still compute is unknown. The others run beside a leader for one
    /// turn of a fiber, in which they compute.
    superseded_leaders: AtomicU32,
    /// Whether Ruby reports when a thread releases the lock.
    is_reported: AtomicBool,
}

impl<O: LoadObserver> Load<O> {
    /// A server whose threads are all free.
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

    /// Ruby reports suspensions from now on.
    pub fn set_reported(&self) {
        self.is_reported.store(true, Ordering::Relaxed);
    }

    /// Whether Ruby reports suspensions.
    pub fn is_reported(&self) -> bool {
        self.is_reported.load(Ordering::Relaxed)
    }

    /// The calling thread, which leads, is about to call the application.
    pub(crate) fn enter(&self, thread: &Activity) {
        self.observer.in_application(self.in_application.fetch_add(1, Ordering::SeqCst) + 1);
        if self.is_reported() {
            thread.0.set(ActivityState::Waiting);
            self.note(thread, true);
        } else {
            self.computing.store(1 + self.superseded(), Ordering::SeqCst);
            self.observer.computing(UNSURE);
        }
    }

    /// The calling thread is back from the application. It `leads` unless another thread has taken the lead meanwhile.
    pub(crate) fn leave(&self, thread: &Activity, leads: bool) {
        self.observer.in_application(self.in_application.fetch_sub(1, Ordering::SeqCst) - 1);
        if self.is_reported() {
            self.note(thread, false);
            thread.0.set(ActivityState::Nothing);
        } else if leads {
            self.set_computing(0);
        }
    }

    /// The calling thread, which does not lead, goes on in the application with a request of its own.
    pub(crate) fn enter_beside(&self, thread: &Activity) {
        self.observer.in_application(self.in_application.fetch_add(1, Ordering::SeqCst) + 1);
        if self.is_reported() {
            thread.0.set(ActivityState::Waiting);
            self.note(thread, true);
        } else {
            self.superseded.fetch_add(1, Ordering::SeqCst);
            self.computing.fetch_add(1, Ordering::SeqCst);
            self.tell_unreported();
        }
    }

    /// The calling thread is back from [`enter_beside`](Self::enter_beside).
    pub(crate) fn leave_beside(&self, thread: &Activity) {
        self.leave(thread, false);
        self.forget_beside();
    }

    /// Whether it is unknown if the leader computes.
    pub fn is_unsure(&self) -> bool {
        !self.is_reported() && self.computing() > self.superseded()
    }

    /// The leader is found blocked.
    pub(crate) fn note_blocked(&self) {
        if !self.is_reported() {
            self.set_computing(0);
        }
    }

    /// Another thread leads from now on, though the leader computes.
    pub(crate) fn note_superseded(&self) {
        if !self.is_reported() {
            self.superseded.fetch_add(1, Ordering::SeqCst);
            self.set_computing(0);
            // Last here and first on return: no thread counts as one that waits and is not in the application.
            self.superseded_leaders.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// A superseded leader is back. The new one may be in the application or not.
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
            self.tell_unreported();
        }
    }

    fn tell_unreported(&self) {
        self.observer.computing(if self.is_unsure() { UNSURE } else { self.superseded() });
    }

    /// The calling thread holds the interpreter lock or waits for it (true), or has released it.
    pub(crate) fn note(&self, thread: &Activity, is_computing: bool) {
        match (thread.0.get(), is_computing) {
            (ActivityState::Waiting, true) => {
                thread.0.set(ActivityState::Computing);
                self.observer.computing(self.computing.fetch_add(1, Ordering::SeqCst) + 1);
            }
            (ActivityState::Computing, false) => {
                thread.0.set(ActivityState::Waiting);
                self.observer.computing(self.computing.fetch_sub(1, Ordering::SeqCst) - 1);
            }
            _ => {}
        }
    }

    /// Threads in the application that hold the lock, or wait for it.
    pub fn computing(&self) -> u32 {
        self.computing.load(Ordering::SeqCst)
    }

    /// Threads that wait in the application, for anything but the lock; superseded leaders, where it is unknown whether
    /// they wait, included.
    pub(crate) fn waiting(&self) -> u32 {
        self.count_waiting(self.computing())
    }

    /// The same, with a leader that may wait where that is unknown.
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

    /// Sets how many threads compute beside those that were superseded.
    fn set_computing(&self, threads: u32) {
        let threads = threads + self.superseded();
        self.computing.store(threads, Ordering::SeqCst);
        self.observer.computing(threads);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Atomics of the tests work within an exploration only.
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
