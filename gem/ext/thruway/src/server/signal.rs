//! What is seen of the leadership without the interpreter lock.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use thruway_serve::monotonic_us;

use super::duty::Duty;
use super::load::Load;

/// The leader is not suspended.
const RUNS: u64 = 0;

/// How long a leader may be without the lock before a follower is called. It is several times the length of a
/// hand-off, so a short wait causes none.
pub(super) const PATIENCE_US: u64 = 300;

pub(super) struct Signal {
    pub(super) duty: Duty,
    pub(super) load: Load,
    /// Followers that are called and still wait.
    called: Mutex<u32>,
    changed: Condvar,
    /// Followers that wait or are about to, and those that were called and do not lead yet.
    followers: AtomicU32,
    /// Followers that were called and do not have the interpreter lock yet.
    coming: AtomicU32,
    /// Counts the leader's calls of the application; odd while it is in one.
    calls: AtomicU64,
    /// The call in which the leader computes for so long that another thread is to lead; zero if there is none.
    long_call: AtomicU64,
    /// The leader's thread, as the system numbers it.
    leader_thread: AtomicU32,
    /// Since when the leader is without the lock in the application, where Ruby tells.
    suspended_us: AtomicU64,
    /// How long its last wait in this call took, until it wanted the lock back.
    waited_us: AtomicU64,
    /// Requests wait, so that a follower is to lead as soon as the leader blocks.
    is_awaited: AtomicBool,
    /// The leader gathers a body, which a successor is to send if the leader blocks.
    is_gathering: AtomicBool,
    /// The standby looks at the leader again soon, without being called.
    is_watched: AtomicBool,
}

impl Signal {
    pub(super) fn new(duty: Duty, load: Load) -> Self {
        Self {
            duty,
            load,
            called: Mutex::default(),
            changed: Condvar::new(),
            followers: AtomicU32::new(0),
            coming: AtomicU32::new(0),
            calls: AtomicU64::new(0),
            long_call: AtomicU64::new(0),
            leader_thread: AtomicU32::new(0),
            suspended_us: AtomicU64::new(RUNS),
            waited_us: AtomicU64::new(0),
            is_awaited: AtomicBool::new(false),
            is_gathering: AtomicBool::new(false),
            is_watched: AtomicBool::new(false),
        }
    }

    /// Calls one follower, if one waits and none was called before.
    pub(super) fn call_follower(&self) {
        if self.coming.load(Ordering::Relaxed) > 0 || !self.has_followers() {
            return;
        }
        let mut called = self.called.lock().unwrap_or_else(PoisonError::into_inner);
        if *called < self.followers.load(Ordering::Relaxed) {
            *called += 1;
            self.coming.store(1, Ordering::Relaxed);
            self.changed.notify_one();
        }
    }

    pub(super) fn call_all_followers(&self) {
        let mut called = self.called.lock().unwrap_or_else(PoisonError::into_inner);
        *called = self.followers.load(Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// No follower is coming any more: the called follower has come, or has ended.
    pub(super) fn forget_coming(&self) {
        self.coming.store(0, Ordering::Relaxed);
    }

    /// A thread begins to follow: before it releases the lock, so that calls from now on count it. The standby, which
    /// does not look after a leader without followers, is told if this one is wanted.
    pub(super) fn add_follower(&self) {
        self.followers.fetch_add(1, Ordering::SeqCst);
        if self.wants_successor() {
            self.nudge();
        }
    }

    pub(super) fn remove_follower(&self) {
        self.followers.fetch_sub(1, Ordering::Relaxed);
        self.forget_coming();
    }

    /// A follower's wait.
    pub(super) fn wait(&self, is_ended: &AtomicBool) {
        let mut called = self.called.lock().unwrap_or_else(PoisonError::into_inner);
        while *called == 0 && !is_ended.load(Ordering::Relaxed) {
            called = self.changed.wait(called).unwrap_or_else(PoisonError::into_inner);
        }
        *called = called.saturating_sub(1);
    }

    pub(super) fn end_wait(&self, is_ended: &AtomicBool) {
        let _called = self.called.lock().unwrap_or_else(PoisonError::into_inner);
        is_ended.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// The calling thread leads from now on. The call that its predecessor may be in is no call of the leader's.
    pub(super) fn note_leader(&self) {
        if !self.calls().is_multiple_of(2) {
            self.calls.fetch_add(1, Ordering::SeqCst);
        }
        self.suspended_us.store(RUNS, Ordering::Relaxed);
        self.waited_us.store(0, Ordering::Relaxed);
        self.leader_thread.store(thread_number(), Ordering::Relaxed);
    }

    /// The leader is about to call the application. If something `waits` at the engine, no further event tells of it.
    pub(super) fn note_call(&self, is_long: bool, waits: bool) {
        self.waited_us.store(0, Ordering::Relaxed);
        // First the count, then the check whether the standby sleeps: the standby does the two the other way round.
        self.calls.fetch_add(1, Ordering::SeqCst);
        match (is_long, waits) {
            (true, true) => self.nudge(),
            (true, false) => self.duty.call(),
            (false, _) => {
                self.duty.dismiss();
                self.duty.note_call();
            }
        }
    }

    /// The leader is back from the application.
    pub(super) fn note_return(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.is_gathering.store(false, Ordering::Relaxed);
    }

    /// The leader's calls so far; odd while it is in one.
    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// The leader's call of that number lasts for too long.
    pub(super) fn note_long_call(&self, call: u64) {
        self.long_call.store(call, Ordering::SeqCst);
    }

    /// Whether the leader is in a call that lasts for too long.
    pub(super) fn is_in_long_call(&self) -> bool {
        let call = self.calls();
        !call.is_multiple_of(2) && self.long_call.load(Ordering::SeqCst) == call
    }

    pub(super) fn has_followers(&self) -> bool {
        self.followers.load(Ordering::SeqCst) > 0
    }

    pub(super) fn leader_thread(&self) -> u32 {
        self.leader_thread.load(Ordering::Relaxed)
    }

    /// Notes whether requests wait while no thread serves them.
    pub(super) fn set_awaited(&self, is_awaited: bool) {
        self.is_awaited.store(is_awaited, Ordering::SeqCst);
    }

    /// The leader gathers a body. If it blocks, another thread has to send that.
    pub(super) fn note_gathering(&self) {
        self.is_gathering.store(true, Ordering::SeqCst);
        if !self.load.is_told() {
            self.duty.call();
        }
    }

    /// Whether a follower is to lead as soon as the leader blocks in the application.
    pub(super) fn wants_successor(&self) -> bool {
        let is_wanted =
            self.is_awaited.load(Ordering::SeqCst) || self.is_gathering.load(Ordering::SeqCst);
        is_wanted && self.has_followers() && !self.calls().is_multiple_of(2)
    }

    /// For how long the leader has been without the lock in the application, where Ruby tells.
    pub(super) fn suspended_for_us(&self) -> Option<u64> {
        let since = self.suspended_us.load(Ordering::SeqCst);
        (since != RUNS).then(|| monotonic_us().saturating_sub(since))
    }

    /// Whether the leader waits in the application, or wants the lock back after a wait that was not short. Known where
    /// Ruby tells.
    pub(super) fn is_leader_blocked(&self) -> bool {
        self.suspended_for_us().is_some() || self.waited_us.load(Ordering::Relaxed) >= PATIENCE_US
    }

    /// The calling thread releases the lock, or wants it back. Nothing of Ruby's is touched.
    pub(super) fn note_suspension(&self, is_suspended: bool) {
        self.load.note(!is_suspended);
        if self.calls().is_multiple_of(2) || self.leader_thread() != thread_number() {
            return;
        }
        if let Some(waited_us) = self.suspended_for_us() {
            self.waited_us.store(waited_us, Ordering::Relaxed);
        }
        let since = if is_suspended { monotonic_us().max(RUNS + 1) } else { RUNS };
        self.suspended_us.store(since, Ordering::SeqCst);
        if is_suspended && self.wants_successor() {
            self.nudge();
        }
    }

    /// Notes whether the standby looks again soon, by itself. As it begins a look it does not: what changes from then
    /// on it may miss.
    pub(super) fn set_watched(&self, is_watched: bool) {
        self.is_watched.store(is_watched, Ordering::SeqCst);
    }

    /// Makes the standby look at once, unless it looks soon.
    fn nudge(&self) {
        if !self.is_watched() {
            self.duty.nudge();
        }
    }

    /// Whether the standby looks soon by itself. It does not after it was dismissed.
    fn is_watched(&self) -> bool {
        self.duty.is_on() && self.is_watched.load(Ordering::SeqCst)
    }
}

/// The calling thread, as the system numbers it.
fn thread_number() -> u32 {
    // SAFETY: `gettid` has no preconditions and cannot fail.
    unsafe { libc::gettid() }.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use thruway_serve::{Engine, Settings};

    use super::*;

    fn signal() -> Signal {
        let engine = Engine::new(Settings::default(), Vec::new(), None).unwrap();
        Signal::new(Duty::new(engine.handle().bell), Load::new(2, None, None))
    }

    /// A signal whose leader, this thread, has waited for so long in the application.
    fn after_wait(wait: Duration) -> Signal {
        let signal = signal();
        signal.note_leader();
        signal.note_call(false, false);
        signal.note_suspension(true);
        assert!(signal.is_leader_blocked(), "it waits");
        std::thread::sleep(wait);
        signal.note_suspension(false);
        signal
    }

    #[test]
    fn a_leader_that_wants_the_lock_counts_as_blocked_after_a_long_wait_alone() {
        let signal = after_wait(Duration::from_micros(PATIENCE_US));
        assert!(signal.is_leader_blocked());
        signal.note_return();
        signal.note_call(false, false);
        assert!(!signal.is_leader_blocked(), "it is another call");
        // The system may take the processor away in between.
        let is_short = (0..1000).any(|_| !after_wait(Duration::ZERO).is_leader_blocked());
        assert!(is_short);
    }

    #[test]
    fn a_standby_that_looks_soon_is_not_called() {
        let signal = signal();
        signal.set_watched(true);
        assert!(!signal.is_watched(), "it is not on duty");
        signal.duty.call();
        assert!(signal.is_watched());
        signal.set_watched(false);
        assert!(!signal.is_watched(), "what changes from now on it may miss");
        signal.set_watched(true);
        signal.duty.dismiss();
        assert!(!signal.is_watched());
    }
}
