//! The part of the protocol that works without the interpreter lock: the view that Ruby's thread events, the standby
//! and waiting followers have of the leader, and the calls among them.
//!
//! # Ordering
//! A wake-up is lost if two threads each change one value and then read the other's, and both read the old value. There
//! are three such pairs. Each of them is sequentially consistent on both sides (`SeqCst`), with the change first:
//!
//! | one side | the other side |
//! | --- | --- |
//! | the leader counts a call, then reads the standby's state | the standby falls asleep, then reads the count |
//! | a thread notes a suspension or a follower, then reads `is_watched` | the standby clears `is_watched`, then looks |
//! | a thread follows, then reads whether it is wanted | the standby notes waiting requests, then looks for followers |
//!
//! A `Relaxed` value is read by the thread that wrote it, or is a hint whose late arrival costs one more look.

use std::time::Duration;

use crate::duty::{Bell, Duty, DutyEvent};
use crate::load::{Activity, Load, LoadObserver};
use crate::roster::{FollowerBell, Limits, Roster, WaitOutcome};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The leader is not suspended.
const RUNS: u64 = 0;

/// How long a leader may be without the lock before a follower is called, in microseconds. The time is several times
/// that of a hand-off, so a short wait causes none.
pub(crate) const PATIENCE_US: u64 = 300;

/// How long one computing call may hold back waiting requests from other threads. The time is ten of Ruby's quanta, and
/// a call of usual length is over sooner. Calls that take turns at the lock each take longer.
const LONG_CALL: Duration = Duration::from_secs(1);

/// How long a leader has to wait before a thread is started for the requests behind it, in microseconds. A thread costs
/// more than a hand-off, and lasts longer.
pub(crate) const START_PATIENCE_US: u64 = 2_000;

/// The shared part of a server's roles.
#[derive(Debug)]
pub struct SharedRoles<B, O> {
    duty: Duty<B>,
    /// The threads in the application, by whether they compute or wait.
    pub load: Load<O>,
    pub(crate) roster: Roster,
    /// The number of the leader's calls and returns; odd during a call.
    calls: AtomicU64,
    /// The call in which the leader computes for too long, so that another thread is to lead; zero if there is none.
    long_call: AtomicU64,
    /// The number of the leader's thread in the system.
    leader_thread: AtomicU32,
    /// When the leader released the lock in the application, if Ruby reports suspensions.
    suspended_us: AtomicU64,
    /// How long the last wait in the current call took, until the leader wanted the lock back.
    waited_us: AtomicU64,
    /// Whether requests wait, so that a follower is to lead as soon as the leader blocks.
    is_awaited: AtomicBool,
    /// Whether the leader holds unsent pieces of a response's body, which a successor has to send if the leader blocks.
    is_gathering: AtomicBool,
    /// Whether the standby will soon look at the leader again without being woken.
    is_watched: AtomicBool,
    /// Whether a thread was wanted and no more were allowed, for the log.
    is_at_limit: AtomicBool,
    /// The number of jobs in the lane.
    left: AtomicU32,
    /// How long one call may compute while requests wait, until another thread takes the lead.
    lead_limit: Duration,
}

impl<B: Bell, O: LoadObserver> SharedRoles<B, O> {
    /// Creates the roles of a server that has not called the application yet.
    pub fn new(bell: B, observer: O, limits: Limits) -> Self {
        Self {
            duty: Duty::new(bell),
            load: Load::new(observer),
            roster: Roster::new(limits),
            calls: AtomicU64::new(0),
            long_call: AtomicU64::new(0),
            leader_thread: AtomicU32::new(0),
            suspended_us: AtomicU64::new(RUNS),
            waited_us: AtomicU64::new(0),
            is_awaited: AtomicBool::new(false),
            is_gathering: AtomicBool::new(false),
            is_watched: AtomicBool::new(false),
            is_at_limit: AtomicBool::new(false),
            left: AtomicU32::new(0),
            lead_limit: LONG_CALL,
        }
    }

    /// The same roles, in which a call that computes for longer than `lead_limit` loses the lead.
    #[must_use]
    pub fn with_lead_limit(self, lead_limit: Duration) -> Self {
        Self { lead_limit, ..self }
    }

    pub(crate) fn lead_limit(&self) -> Duration {
        self.lead_limit
    }

    /// Records the number of jobs in the lane.
    pub(crate) fn note_left(&self, jobs: usize) {
        self.left.store(u32::try_from(jobs).unwrap_or(u32::MAX), Ordering::SeqCst);
    }

    /// Whether jobs are in the lane: see [`ComputeLane`](crate::ComputeLane).
    pub fn has_left(&self) -> bool {
        self.left.load(Ordering::SeqCst) > 0
    }

    /// Whether jobs are in the lane and no thread computes, so that another one may take a job. May be called without
    /// the interpreter lock.
    pub fn is_lane_idle(&self) -> bool {
        self.has_left() && self.load.computing() == 0
    }

    /// The permitted numbers of threads.
    pub fn limits(&self) -> &Limits {
        self.roster.limits()
    }

    /// The number of existing threads, including those that are about to start.
    pub fn threads(&self) -> u32 {
        self.roster.present()
    }

    /// Summons the standby: no Ruby thread will be at the engine for a while.
    pub fn summon_standby(&self) {
        self.duty.apply(DutyEvent::Summon);
    }

    /// Dismisses the standby: the calling thread is at the engine and sees all events.
    pub fn dismiss_standby(&self) {
        self.duty.apply(DutyEvent::Dismiss);
    }

    /// Ends the standby and the orders of threads.
    pub fn end(&self) {
        self.duty.apply(DutyEvent::End);
        self.roster.close();
    }

    /// Calls a follower to take the lead, or orders a thread if the server may have one more.
    pub fn call_successor(&self) {
        let waiting = if self.counts_waiting() { self.load.waiting() } else { 0 };
        self.roster.call(waiting);
    }

    /// Orders a thread for the requests behind the leader, which is about to make a call that will probably block.
    pub(crate) fn order_spare(&self) {
        if self.counts_waiting() {
            self.roster.order_spare(self.load.waiting());
        }
    }

    /// Whether a thread was wanted since the last call and no more were allowed.
    pub fn take_at_limit(&self) -> bool {
        // A load is cheaper than a swap, which is rarely needed.
        self.is_at_limit.load(Ordering::Relaxed) && self.is_at_limit.swap(false, Ordering::Relaxed)
    }

    /// Calls every follower, so that each asks for its role.
    pub fn call_all_followers(&self) {
        self.roster.call_all();
    }

    /// Lets the next call of a successor call one, because the last called thread has ended.
    pub(crate) fn forget_coming(&self) {
        self.roster.forget_coming();
    }

    /// Waits for the order of a thread; false once the server or the wait has ended.
    pub fn wait_for_order(&self, is_ended: &AtomicFlag) -> bool {
        self.roster.wait_for_order(|| is_ended.0.load(Ordering::Relaxed))
    }

    /// Ends one wait for an order.
    pub fn end_order_wait(&self, is_ended: &AtomicFlag) {
        self.roster.interrupt_order(|| is_ended.0.store(true, Ordering::Relaxed));
    }

    /// Counts a dismissed thread again that has ended for another reason, so that it is replaced.
    pub fn readmit(&self) {
        self.roster.readmit();
    }

    /// Records that an ordered thread runs.
    pub fn arrive(&self) {
        self.roster.arrive();
    }

    /// Records that an ordered thread could not be started.
    pub fn cancel_order(&self) {
        self.roster.cancel_order();
    }

    /// Records that the request of the calling thread is marked as waiting (true), or that such a request is over.
    pub fn mark_waiting(&self, is_marked: bool) {
        self.roster.mark(is_marked);
        if is_marked && self.wants_successor() {
            self.nudge();
        }
    }

    /// Counts a thread that begins to follow. The caller still holds the interpreter lock, so any later call counts the
    /// thread. The standby does not watch a leader without successors, so it is woken if the new follower is wanted.
    pub fn add_follower(&self) {
        self.roster.add_follower();
        if self.wants_successor() {
            self.nudge();
        }
    }

    /// Stops counting a thread that no longer follows.
    pub fn remove_follower(&self) {
        self.roster.remove_follower();
    }

    /// Waits as a follower, without the interpreter lock. `now_us` is a monotonic clock.
    pub fn wait_as_follower(&self, is_ended: &AtomicFlag, now_us: impl Fn() -> u64) -> WaitOutcome {
        self.roster.wait(|| is_ended.0.load(Ordering::Relaxed), now_us)
    }

    /// Ends the wait of one follower.
    pub fn end_wait(&self, is_ended: &AtomicFlag) {
        self.roster.interrupt(|| is_ended.0.store(true, Ordering::Relaxed));
    }

    /// Takes a call for a follower, if there is one. A follower that waits for more than calls, such as for its own
    /// fibers, uses this function instead of [`wait_as_follower`](Self::wait_as_follower).
    pub fn take_call(&self) -> bool {
        self.roster.take_call()
    }

    /// Makes every call of a follower ring `bell`, too. The thread behind the bell uses [`take_call`](Self::take_call).
    pub fn add_bell(&self, bell: FollowerBell) {
        self.roster.add_bell(bell);
    }

    /// Removes the bell with the number, which [`add_bell`](Self::add_bell) added.
    pub fn remove_bell(&self, number: usize) {
        self.roster.remove_bell(number);
    }

    /// Makes the calling thread, which the system knows as `thread`, the leader. A call that its predecessor is in is
    /// no longer a call of the leader.
    pub(crate) fn note_leader(&self, thread: u32) {
        if self.is_calling() {
            self.calls.fetch_add(1, Ordering::SeqCst);
        }
        self.suspended_us.store(RUNS, Ordering::Relaxed);
        self.waited_us.store(0, Ordering::Relaxed);
        self.leader_thread.store(thread, Ordering::Relaxed);
    }

    /// Records that the leader is about to call the application. Requests that wait at the engine (`waits`) raise no
    /// further event.
    pub(crate) fn note_call(&self, is_long: bool, waits: bool) {
        self.waited_us.store(0, Ordering::Relaxed);
        // The count changes before the standby's state: see the table of pairs.
        self.calls.fetch_add(1, Ordering::SeqCst);
        match (is_long, waits) {
            (true, true) => self.nudge(),
            (true, false) => self.summon_standby(),
            (false, _) => {
                self.dismiss_standby();
                self.duty.apply(DutyEvent::Call);
            }
        }
    }

    /// Records that the leader is back from the application.
    pub(crate) fn note_return(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.is_gathering.store(false, Ordering::Relaxed);
    }

    /// The number of the leader's calls and returns so far; odd during a call.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    fn is_calling(&self) -> bool {
        !self.calls().is_multiple_of(2)
    }

    /// Records that the leader's call with the number lasts too long.
    pub(crate) fn note_long_call(&self, call: u64) {
        self.long_call.store(call, Ordering::SeqCst);
    }

    /// Whether the leader is in a call that lasts too long.
    pub(crate) fn is_in_long_call(&self) -> bool {
        let call = self.calls();
        !call.is_multiple_of(2) && self.long_call.load(Ordering::SeqCst) == call
    }

    /// Whether any thread follows.
    pub fn has_followers(&self) -> bool {
        self.roster.has_followers()
    }

    /// The number of the leader's thread in the system.
    pub fn leader_thread(&self) -> u32 {
        self.leader_thread.load(Ordering::Relaxed)
    }

    /// Records whether requests wait while no thread serves them.
    pub fn set_awaited(&self, is_awaited: bool) {
        self.is_awaited.store(is_awaited, Ordering::SeqCst);
    }

    /// Records that the leader collects pieces of a response's body and has not sent them. Another thread has to send
    /// them if the leader blocks.
    pub fn note_gathering(&self) {
        self.is_gathering.store(true, Ordering::SeqCst);
        if !self.load.is_reported() {
            self.summon_standby();
        }
    }

    /// Whether another thread should and can lead as soon as the leader blocks in the application.
    pub fn wants_successor(&self) -> bool {
        let is_wanted = self.is_awaited.load(Ordering::SeqCst)
            || self.is_gathering.load(Ordering::SeqCst)
            || self.is_lane_idle();
        if !is_wanted || !self.is_calling() {
            return false;
        }
        let has_successor = self.roster.has_successor(self.maybe_waiting());
        if !has_successor && self.limits().are_elastic() {
            self.note_limit();
        }
        has_successor
    }

    /// Records that a thread was wanted and no more are allowed. The log mentions the limit if all other threads wait.
    fn note_limit(&self) {
        if self.load.maybe_waiting() >= self.threads() {
            self.is_at_limit.store(true, Ordering::Relaxed);
        }
    }

    /// How long the leader may wait before a successor is called, in microseconds.
    pub(crate) fn patience_us(&self) -> u64 {
        if self.has_followers() { PATIENCE_US } else { START_PATIENCE_US }
    }

    /// How long the leader has been without the lock in the application, if Ruby reports suspensions.
    pub fn suspended_for_us(&self, now_us: impl FnOnce() -> u64) -> Option<u64> {
        let since = self.suspended_us.load(Ordering::SeqCst);
        (since != RUNS).then(|| now_us().saturating_sub(since))
    }

    /// Whether the leader waits in the application, or wants the lock back after a wait that was not short. Valid if
    /// Ruby reports suspensions.
    pub fn is_leader_blocked(&self) -> bool {
        self.suspended_us.load(Ordering::SeqCst) != RUNS
            || self.waited_us.load(Ordering::Relaxed) >= PATIENCE_US
    }

    /// Records that the calling thread releases the lock (true), or wants it back. `thread` is the system's number of
    /// the thread, which matters only while the leader is in the application. The function touches no Ruby object.
    pub fn note_suspension(
        &self,
        is_suspended: bool,
        activity: &Activity,
        thread: impl FnOnce() -> u32,
        now_us: impl Fn() -> u64,
    ) {
        self.load.note(activity, !is_suspended);
        if !self.is_calling() || self.leader_thread() != thread() {
            // The leader may be blocked, too, and has not been looked at while this thread computed.
            if is_suspended && self.has_left() && self.wants_successor() {
                self.nudge();
            }
            return;
        }
        if let Some(waited_us) = self.suspended_for_us(&now_us) {
            self.waited_us.store(waited_us, Ordering::Relaxed);
        }
        let since = if is_suspended { now_us().max(RUNS + 1) } else { RUNS };
        self.suspended_us.store(since, Ordering::SeqCst);
        if is_suspended && self.wants_successor() {
            self.nudge();
        }
    }

    /// Records whether the standby will soon look again by itself. The record is cleared as a look begins, because the
    /// look may miss later changes.
    pub(crate) fn set_watched(&self, is_watched: bool) {
        self.is_watched.store(is_watched, Ordering::SeqCst);
    }

    /// Waits as the standby off duty; false at the end.
    pub fn wait_for_duty(&self) -> bool {
        self.duty.wait(|| self.calls())
    }

    /// Whether the standby is on duty.
    pub fn is_on_duty(&self) -> bool {
        self.duty.is_on()
    }

    /// Begins a look of the standby at the engine, which covers all calls so far.
    pub fn begin_look(&self) {
        self.duty.bell().silence();
        self.set_watched(false);
    }

    /// The standby's bell.
    pub fn bell(&self) -> &B {
        self.duty.bell()
    }

    /// Makes the standby look at once, unless it will soon look by itself.
    fn nudge(&self) {
        if !self.is_watched() {
            self.duty.nudge();
        }
    }

    /// Whether the standby will soon look by itself, which it does not after its dismissal.
    fn is_watched(&self) -> bool {
        self.is_on_duty() && self.is_watched.load(Ordering::SeqCst)
    }

    /// The number of threads in the application that wait, including a leader that may.
    fn maybe_waiting(&self) -> u32 {
        if self.counts_waiting() { self.load.maybe_waiting() } else { 0 }
    }

    /// Whether the number of threads depends on the number of waiting threads.
    fn counts_waiting(&self) -> bool {
        self.limits().waiting_max > 0
    }
}

/// A flag that ends one thread's wait, for a call or for an order.
#[derive(Debug)]
pub struct AtomicFlag(AtomicBool);

impl Default for AtomicFlag {
    fn default() -> Self {
        Self(AtomicBool::new(false))
    }
}
