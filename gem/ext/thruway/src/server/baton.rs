//! Which thread leads.
//!
//! One thread of a process leads: it waits for events, reads, calls the application and writes, without
//! handing anything to another thread, because a hand-off costs more than a short request. The others
//! follow: they wait without the interpreter lock. A follower takes over only while the leader is
//! blocked inside the application; the old leader finishes its request and follows.
//!
//! Who notices that the leader blocks: a watchdog thread, which Ruby 3.2 and later tell that the leader let
//! go of the lock, and which looks at the leader's state before that (see `watch`). Where applications block
//! all the time, waiting for it would cost each request that delay. So the leader then calls a follower
//! *before* it enters the application: the follower queues for the lock, and has it at the very moment
//! that the leader lets go of it.
//!
//! A leader that stays in one call for long is *away*: in a cluster the process's *porter* then sends the
//! connections that wait to other workers. It is one more thread, which never calls the application.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::lock::Lock;
use super::sleeper::{Event, Sleeper};

/// A leader that blocks in more than this share of its calls, in thousandths, calls a follower before
/// each.
const CALLS_AHEAD_PERMILLE: i32 = 250;

/// A new call weighs one part in so many in the share of blocking ones.
const MEMORY_CALLS: i32 = 16;

/// Between two looks of the porter at a leader: one that is in the same call at both is away.
const AWAY: Duration = Duration::from_millis(50);

/// What a thread is to do next.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Lead,
    Follow,
}

/// Who leads, and where it is. Used with the interpreter lock held, but for [`Signal`].
pub(super) struct Baton {
    leader: Cell<Option<usize>>,
    leader_calls: Cell<bool>,
    /// Threads that are in the application and lead no more.
    superseded: Cell<usize>,
    blocking_permille: Cell<i32>,
    signal: Arc<Signal>,
}

/// What is seen of the baton without the interpreter lock.
#[derive(Default)]
pub(super) struct Signal {
    /// Followers that are called and still wait.
    called: Mutex<u32>,
    changed: Condvar,
    /// Followers that wait, are about to, or were called and are on their way back.
    followers: AtomicU32,
    /// Followers that were called and do not have the interpreter lock yet.
    coming: AtomicU32,
    /// Counts the leader's calls of the application; odd while it is in one.
    calls: AtomicU64,
    /// The leader's thread, as the system numbers it.
    leader_thread: AtomicU32,
    /// Whether the leader is without the lock in the application, and how often it was: counted where
    /// Ruby tells.
    is_suspended: AtomicBool,
    suspensions: AtomicU64,
    watchdog: Sleeper,
    porter: Sleeper,
    is_ending: AtomicBool,
}

impl Baton {
    pub(super) fn new() -> Self {
        Self {
            leader: Cell::new(None),
            leader_calls: Cell::new(false),
            superseded: Cell::new(0),
            blocking_permille: Cell::new(0),
            signal: Arc::default(),
        }
    }

    pub(super) fn signal(&self) -> Arc<Signal> {
        Arc::clone(&self.signal)
    }

    /// What thread `me` is to do: it takes the lead if nobody has it, or if the leader is blocked.
    pub(super) fn role(&self, me: usize, leader_is_blocked: impl FnOnce(usize) -> bool) -> Role {
        match self.leader.get() {
            Some(leader) if leader == me => Role::Lead,
            Some(leader) if !self.leader_calls.get() || !leader_is_blocked(leader) => Role::Follow,
            Some(_) => {
                self.superseded.set(self.superseded.get() + 1);
                self.take(me)
            }
            None => self.take(me),
        }
    }

    fn take(&self, me: usize) -> Role {
        self.leader.set(Some(me));
        self.leader_calls.set(false);
        self.signal.calls.fetch_and(!1, Ordering::Relaxed);
        self.signal.is_suspended.store(false, Ordering::Relaxed);
        self.signal.leader_thread.store(thread_number(), Ordering::Relaxed);
        Role::Lead
    }

    pub(super) fn leads(&self, me: usize) -> bool {
        self.leader.get() == Some(me)
    }

    /// Gives up the lead, and calls a follower to take it.
    pub(super) fn release(&self, me: usize) {
        if self.leads(me) {
            self.leader.set(None);
            self.leader_calls.set(false);
            self.signal.coming.store(0, Ordering::Relaxed);
            self.signal.call_follower();
        }
    }

    /// Thread `me` ends before its time: what it was called for, another follower is called for.
    pub(super) fn resign(&self, me: usize) {
        self.release(me);
        self.signal.coming.store(0, Ordering::Relaxed);
        self.signal.call_follower();
    }

    /// The leader is about to call the application.
    pub(super) fn enter_application(&self) {
        self.leader_calls.set(true);
        // Before the look at whether the watchdog sleeps, as the watchdog has it the other way round.
        self.signal.calls.fetch_add(1, Ordering::SeqCst);
        if self.blocking_permille.get() > CALLS_AHEAD_PERMILLE {
            self.signal.call_follower();
        }
        self.signal.watchdog.tell(Event::Call);
        self.signal.porter.tell(Event::Call);
    }

    /// The application has answered `me`, who may lead no more.
    pub(super) fn leave_application(&self, me: usize) {
        let blocked = !self.leads(me);
        if blocked {
            self.superseded.set(self.superseded.get().saturating_sub(1));
        } else {
            self.leader_calls.set(false);
            self.signal.calls.fetch_add(1, Ordering::Relaxed);
        }
        if blocked || self.signal.followers.load(Ordering::Relaxed) > 0 {
            let now = self.blocking_permille.get();
            let sample = if blocked { 1000 } else { 0 };
            self.blocking_permille.set(now + (sample - now) / MEMORY_CALLS);
        }
    }

    /// Whether another one of so many threads takes the lead should thread `me` block now: `me` leads, and
    /// not all others are in the application.
    pub(super) fn has_successor(&self, me: usize, threads: usize) -> bool {
        self.leads(me) && self.superseded.get() + 1 < threads
    }

    /// Whether threads are in the application that lead no more: they may want the lock.
    pub(super) fn has_superseded(&self) -> bool {
        self.superseded.get() > 0
    }

    /// Waits, without the interpreter lock, until this follower is called.
    pub(super) fn follow(&self, lock: Lock) {
        let is_ended = AtomicBool::new(false);
        let signal = &*self.signal;
        // Counted before the lock is released: whoever calls from now on calls this one, too.
        signal.followers.fetch_add(1, Ordering::Relaxed);
        lock.release(|| signal.wait(&is_ended), || signal.end_wait(&is_ended));
        signal.followers.fetch_sub(1, Ordering::Relaxed);
        signal.coming.store(0, Ordering::Relaxed);
    }

    /// Whether the leader is in the application, so that nobody serves.
    pub(super) fn leader_is_away(&self) -> bool {
        self.leader_calls.get()
    }

    /// Waits, without the interpreter lock, until the leader is away, or the server stops.
    pub(super) fn wait_as_porter(&self, lock: Lock) {
        let is_ended = AtomicBool::new(false);
        let signal = &*self.signal;
        let end = || {
            is_ended.store(true, Ordering::SeqCst);
            signal.porter.interrupt();
        };
        lock.release(|| signal.wait_until_away(&is_ended), end);
    }

    /// Calls every follower and the porter, such as for the end.
    pub(super) fn call_all(&self) {
        self.signal.is_ending.store(true, Ordering::SeqCst);
        self.signal.porter.interrupt();
        let mut called = self.signal.called.lock().unwrap_or_else(PoisonError::into_inner);
        *called = self.signal.followers.load(Ordering::Relaxed);
        self.signal.changed.notify_all();
    }
}

impl Signal {
    /// Lets one follower go, if one waits and none is on its way.
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

    fn wait(&self, is_ended: &AtomicBool) {
        let mut called = self.called.lock().unwrap_or_else(PoisonError::into_inner);
        while *called == 0 && !is_ended.load(Ordering::Relaxed) {
            called = self.changed.wait(called).unwrap_or_else(PoisonError::into_inner);
        }
        *called = called.saturating_sub(1);
    }

    /// The porter's wait.
    fn wait_until_away(&self, is_ended: &AtomicBool) {
        let is_over = || is_ended.load(Ordering::SeqCst) || self.is_ending.load(Ordering::SeqCst);
        let mut last = self.calls();
        while !is_over() {
            std::thread::park_timeout(AWAY);
            let calls = self.calls();
            if calls == last && calls.is_multiple_of(2) {
                self.porter.sleep_until(Event::Call, || is_over() || self.calls() != calls);
            } else if calls == last {
                return;
            }
            last = calls;
        }
    }

    fn end_wait(&self, is_ended: &AtomicBool) {
        let _called = self.called.lock().unwrap_or_else(PoisonError::into_inner);
        is_ended.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// The leader's calls so far; odd while it is in one.
    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    pub(super) fn has_followers(&self) -> bool {
        self.followers.load(Ordering::Relaxed) > 0
    }

    pub(super) fn leader_thread(&self) -> u32 {
        self.leader_thread.load(Ordering::Relaxed)
    }

    /// The watchdog sleeps until the leader calls the application again.
    pub(super) fn sleep_until_call(&self) {
        let calls = self.calls();
        self.watchdog.sleep_until(Event::Call, || self.calls() != calls);
    }

    /// The watchdog sleeps until the leader has been without the lock more than `known` times; how often.
    pub(super) fn sleep_until_suspension(&self, known: u64) -> u64 {
        let suspensions = || self.suspensions.load(Ordering::SeqCst);
        while suspensions() == known {
            self.watchdog.sleep_until(Event::Suspension, || suspensions() != known);
        }
        suspensions()
    }

    /// Whether the leader has been without the lock since its suspension of that number.
    pub(super) fn is_still_suspended(&self, suspension: u64) -> bool {
        self.is_suspended.load(Ordering::SeqCst)
            && self.suspensions.load(Ordering::SeqCst) == suspension
    }

    /// The calling thread lets go of the lock, or wants it back.
    pub(super) fn note_suspension(&self, is_suspended: bool) {
        if self.calls().is_multiple_of(2) || self.leader_thread() != thread_number() {
            return;
        }
        self.is_suspended.store(is_suspended, Ordering::SeqCst);
        if is_suspended {
            self.suspensions.fetch_add(1, Ordering::SeqCst);
            self.watchdog.tell(Event::Suspension);
        }
    }
}

/// The calling thread, as the system numbers it.
fn thread_number() -> u32 {
    // SAFETY: `gettid` has no preconditions and cannot fail.
    unsafe { libc::gettid() }.unsigned_abs()
}
