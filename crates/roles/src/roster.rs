//! The roster of a server's threads: the numbers of existing threads, of followers, and of called followers.
//!
//! All counts change together, in one atomic word, so no reader sees a called follower that has gone. A call that no
//! follower can answer orders a new thread, if the server may have more.

use std::fmt;
use std::time::Duration;

use crate::sync::{AtomicU32, AtomicU64, Condvar, Mutex, MutexGuard, Ordering};

/// How long a thread beyond the minimum has to be superfluous before it ends.
pub(crate) const IDLE: Duration = Duration::from_secs(10);

/// The permitted numbers of threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Threads that exist from the start, and always.
    pub threads_min: u32,
    /// The maximum number of threads regardless of their state.
    pub threads_max: u32,
    /// The maximum number of additional threads, one for each request that the application has marked as waiting.
    pub io_max: u32,
    /// The maximum number of additional threads, one for each request that is found waiting.
    pub waiting_max: u32,
}

impl Limits {
    /// A fixed number of threads.
    #[must_use]
    pub fn fixed(threads: u32) -> Self {
        Self { threads_min: threads, threads_max: threads, io_max: 0, waiting_max: 0 }
    }

    /// The maximum number of threads that can exist at one time.
    #[must_use]
    pub fn threads(&self) -> u32 {
        self.threads_max.saturating_add(self.io_max).saturating_add(self.waiting_max)
    }

    /// Whether threads are started and ended while the server serves.
    #[must_use]
    pub fn are_elastic(&self) -> bool {
        self.threads() > self.threads_min
    }
}

/// The roster's counts, as one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Counts {
    /// Existing threads, including ordered ones.
    present: u16,
    /// Ordered threads that do not run yet.
    ordered: u16,
    /// Followers: threads that wait, or were called and do not have the interpreter lock yet.
    following: u16,
    /// Followers that are called and still wait.
    called: u16,
}

/// Threads that are started before they are needed, while most calls block: as many as can take the lead from each
/// other in the time that the start of one takes.
const SPARE_MAX: u16 = 4;

/// A thread was called to lead, or ordered, and has yet to arrive. Until then, no other thread is called.
const COMING: u64 = 1 << 63;

impl Counts {
    fn unpack(word: u64) -> Self {
        let field = |at: u32| u16::try_from((word >> at) & 0x7fff).unwrap_or(0);
        Self { present: field(0), ordered: field(15), following: field(30), called: field(45) }
    }

    fn pack(self) -> u64 {
        let field = |count: u16, at: u32| u64::from(count & 0x7fff) << at;
        field(self.present, 0)
            | field(self.ordered, 15)
            | field(self.following, 30)
            | field(self.called, 45)
    }
}

/// The answer to a call for a leading thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// A follower or a new thread comes, or one was already on its way.
    Comes,
    /// No thread is free, and no more are allowed.
    Nobody,
}

/// The end of a follower's wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitOutcome {
    /// The thread was called or interrupted, and has to ask for its role.
    Over,
    /// The thread is superfluous and ends.
    Dismissed,
}

/// A bell for one follower that waits for more than calls.
pub struct FollowerBell {
    /// The thread's number.
    pub number: usize,
    /// Wakes the thread, now or as soon as it waits.
    pub ring: Box<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for FollowerBell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "FollowerBell({})", self.number)
    }
}

/// The spare threads of one period.
#[derive(Debug, Default)]
struct Period {
    begun_us: u64,
    /// The lowest number of followers left after a call: so many were never needed.
    spare: Option<u32>,
}

/// The threads of one server.
#[derive(Debug)]
pub(crate) struct Roster {
    limits: Limits,
    word: AtomicU64,
    /// Requests in progress that the application has marked as waiting.
    marked: AtomicU32,
    period: Mutex<Period>,
    called: Condvar,
    /// The bells of followers that do not wait for `called`.
    bells: Mutex<Vec<FollowerBell>>,
    /// The number of bells: most servers have none, and take no lock for them.
    bell_count: AtomicU32,
    /// Orders of threads, for the thread that starts them.
    orders: Mutex<Orders>,
    ordered: Condvar,
}

#[derive(Debug, Default)]
struct Orders {
    count: u32,
    is_closed: bool,
}

impl Roster {
    /// Creates the roster of a server that starts its minimum of threads by itself.
    pub(crate) fn new(limits: Limits) -> Self {
        let present = u16::try_from(limits.threads_min).unwrap_or(u16::MAX) & 0x7fff;
        Self {
            limits,
            word: AtomicU64::new(Counts { present, ..Counts::default() }.pack()),
            marked: AtomicU32::new(0),
            period: Mutex::default(),
            called: Condvar::new(),
            bells: Mutex::default(),
            bell_count: AtomicU32::new(0),
            orders: Mutex::default(),
            ordered: Condvar::new(),
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Whether a follower or a new thread would answer a call, while `waiting` threads wait in the application.
    pub(crate) fn has_successor(&self, waiting: u32) -> bool {
        let counts = self.counts();
        counts.following > 0 || self.may_order(counts, waiting)
    }

    pub(crate) fn has_followers(&self) -> bool {
        self.counts().following > 0
    }

    /// Calls one follower, or orders a thread if none follows and one more is allowed. The call has no effect while a
    /// thread is on its way.
    pub(crate) fn call(&self, waiting: u32) -> Answer {
        let mut word = self.word.load(Ordering::SeqCst);
        loop {
            let mut counts = Counts::unpack(word);
            if word & COMING != 0 {
                return Answer::Comes;
            }
            let orders = counts.called >= counts.following;
            if !orders {
                counts.called += 1;
            } else if self.may_order(counts, waiting) {
                counts.present += 1;
                counts.ordered += 1;
            } else {
                return Answer::Nobody;
            }
            let new = counts.pack() | COMING;
            match self.word.compare_exchange(word, new, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) if orders => self.order_thread(),
                Ok(_) => self.notify(counts),
                Err(now) => {
                    word = now;
                    continue;
                }
            }
            return Answer::Comes;
        }
    }

    /// Orders a thread that is going to be needed, if `SPARE_MAX` are not yet free or on their way, and if one more is
    /// allowed while `waiting` threads wait.
    pub(crate) fn order_spare(&self, waiting: u32) {
        let order = |word| {
            let mut counts = Counts::unpack(word);
            let spare = counts.ordered + counts.following.saturating_sub(counts.called);
            if spare >= SPARE_MAX || !self.may_order(counts, waiting) {
                return None;
            }
            counts.present += 1;
            counts.ordered += 1;
            Some(counts.pack() | word & COMING)
        };
        if self.word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, order).is_ok() {
            self.order_thread();
        }
    }

    /// Calls every follower, so that each asks for its role.
    pub(crate) fn call_all(&self) {
        self.change(|counts| counts.called = counts.following);
        let _period = self.lock_period();
        self.called.notify_all();
        self.ring_bells();
    }

    pub(crate) fn add_bell(&self, bell: FollowerBell) {
        let mut bells = lock(&self.bells);
        bells.push(bell);
        self.set_bell_count(&bells);
    }

    pub(crate) fn remove_bell(&self, number: usize) {
        let mut bells = lock(&self.bells);
        bells.retain(|bell| bell.number != number);
        self.set_bell_count(&bells);
    }

    fn set_bell_count(&self, bells: &[FollowerBell]) {
        self.bell_count.store(u32::try_from(bells.len()).unwrap_or(u32::MAX), Ordering::SeqCst);
    }

    /// Rings all bells: any of the followers may take the call.
    fn ring_bells(&self) {
        if self.bell_count.load(Ordering::SeqCst) > 0 {
            lock(&self.bells).iter().for_each(|bell| (bell.ring)());
        }
    }

    /// Records that no thread is on its way any more: the called thread has arrived or ended.
    pub(crate) fn forget_coming(&self) {
        self.word.fetch_and(!COMING, Ordering::SeqCst);
    }

    /// Counts a thread that begins to follow. The thread holds the interpreter lock, so any later call counts it.
    pub(crate) fn add_follower(&self) {
        self.change(|counts| counts.following += 1);
    }

    /// Stops counting a thread that no longer follows.
    pub(crate) fn remove_follower(&self) {
        self.change(|counts| {
            counts.following = counts.following.saturating_sub(1);
            counts.called = counts.called.min(counts.following);
        });
        self.forget_coming();
    }

    /// Records that an ordered thread runs.
    pub(crate) fn arrive(&self) {
        self.change(|counts| counts.ordered = counts.ordered.saturating_sub(1));
        self.forget_coming();
    }

    /// Cancels the order of a thread that could not be started.
    pub(crate) fn cancel_order(&self) {
        self.change(|counts| {
            counts.ordered = counts.ordered.saturating_sub(1);
            counts.present = counts.present.saturating_sub(1);
        });
        self.forget_coming();
    }

    /// Counts a dismissed thread again.
    pub(crate) fn readmit(&self) {
        self.change(|counts| counts.present += 1);
    }

    /// Counts a request that the application has marked (true), or the end of such a request.
    pub(crate) fn mark(&self, is_marked: bool) {
        if is_marked {
            self.marked.fetch_add(1, Ordering::SeqCst);
        } else {
            self.marked.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Waits as a follower until a call, until `is_interrupted`, or until the thread is superfluous. `now_us` is a
    /// monotonic clock.
    pub(crate) fn wait(
        &self,
        is_interrupted: impl Fn() -> bool,
        now_us: impl Fn() -> u64,
    ) -> WaitOutcome {
        let mut period = self.lock_period();
        loop {
            if self.take_call() || is_interrupted() {
                return WaitOutcome::Over;
            }
            if !self.limits.are_elastic() {
                period = wait(&self.called, period);
                continue;
            }
            if self.ends_superfluous(&mut period, now_us()) {
                return WaitOutcome::Dismissed;
            }
            period = wait_for(&self.called, period, IDLE);
        }
    }

    /// Makes waiting followers check whether they are interrupted. `interrupt` marks one of them.
    pub(crate) fn interrupt(&self, interrupt: impl FnOnce()) {
        let _period = self.lock_period();
        interrupt();
        self.called.notify_all();
    }

    /// Waits for an order: true with an order, false once the roster is closed or the wait `is_interrupted`.
    pub(crate) fn wait_for_order(&self, is_interrupted: impl Fn() -> bool) -> bool {
        let mut orders = lock(&self.orders);
        loop {
            if orders.is_closed || is_interrupted() {
                return false;
            }
            if orders.count > 0 {
                orders.count -= 1;
                return true;
            }
            orders = wait(&self.ordered, orders);
        }
    }

    /// Wakes the threads that wait for an order to start a thread. `interrupt` first marks the one whose wait ends, and
    /// the others wait again.
    pub(crate) fn interrupt_order(&self, interrupt: impl FnOnce()) {
        let _orders = lock(&self.orders);
        interrupt();
        self.ordered.notify_all();
    }

    /// Ends the waits for orders.
    pub(crate) fn close(&self) {
        lock(&self.orders).is_closed = true;
        self.ordered.notify_all();
    }

    pub(crate) fn present(&self) -> u32 {
        self.counts().present.into()
    }

    fn order_thread(&self) {
        lock(&self.orders).count += 1;
        self.ordered.notify_one();
    }

    fn notify(&self, counts: Counts) {
        let mut period = self.lock_period();
        if self.limits.are_elastic() {
            let left = u32::from(counts.following - counts.called);
            period.spare = Some(period.spare.map_or(left, |spare| spare.min(left)));
        }
        self.called.notify_one();
        self.ring_bells();
    }

    fn may_order(&self, counts: Counts, waiting: u32) -> bool {
        let Limits { threads_max, io_max, waiting_max, .. } = self.limits;
        let present = u32::from(counts.present);
        let marked = if io_max == 0 { 0 } else { self.marked.load(Ordering::SeqCst).min(io_max) };
        present < threads_max.saturating_add(marked).saturating_add(waiting.min(waiting_max))
    }

    /// Takes one call, if there is one.
    pub(crate) fn take_call(&self) -> bool {
        let take = |word| {
            let mut counts = Counts::unpack(word);
            counts.called = counts.called.checked_sub(1)?;
            Some(counts.pack() | word & COMING)
        };
        self.word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok()
    }

    /// Removes the calling follower if no call needed one of the followers for a whole period.
    fn ends_superfluous(&self, period: &mut Period, now_us: u64) -> bool {
        let age_us = now_us.saturating_sub(period.begun_us);
        if period.begun_us > 0 && u128::from(age_us) < IDLE.as_micros() {
            return false;
        }
        let is_first = period.begun_us == 0;
        if is_first || period.spare == Some(0) || !self.remove_spare() {
            *period = Period { begun_us: now_us, spare: None };
            return false;
        }
        period.spare = period.spare.map(|spare| spare - 1);
        true
    }

    /// Takes the calling follower off the roster, unless a call is pending or the follower is among the minimum.
    fn remove_spare(&self) -> bool {
        let min = self.limits.threads_min;
        let remove = |word| {
            let mut counts = Counts::unpack(word);
            if u32::from(counts.present) <= min || counts.called >= counts.following {
                return None;
            }
            counts.following -= 1;
            counts.present -= 1;
            Some(counts.pack() | word & COMING)
        };
        self.word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, remove).is_ok()
    }

    fn counts(&self) -> Counts {
        Counts::unpack(self.word.load(Ordering::SeqCst))
    }

    fn change(&self, change: impl Fn(&mut Counts)) {
        let change = |word| {
            let mut counts = Counts::unpack(word);
            change(&mut counts);
            Some(counts.pack() | word & COMING)
        };
        let changed = self.word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change);
        debug_assert!(changed.is_ok(), "the change always gives a word");
    }

    fn lock_period(&self) -> MutexGuard<'_, Period> {
        lock(&self.period)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn wait<'a, T>(condition: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condition.wait(guard).unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Waits on `condition` for at most `timeout`. Under shuttle, whose time stands still, the wait may end at any time.
fn wait_for<'a, T>(
    condition: &Condvar,
    guard: MutexGuard<'a, T>,
    timeout: Duration,
) -> MutexGuard<'a, T> {
    let waited = condition.wait_timeout(guard, timeout);
    waited.unwrap_or_else(std::sync::PoisonError::into_inner).0
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { threads_min: 1, threads_max: 2, io_max: 1, waiting_max: 2 };

    fn check(test: impl Fn() + Send + Sync + 'static) {
        shuttle::check_random(test, 1);
    }

    /// Orders as many threads as the roster allows while `waiting` threads wait, and returns the number of threads.
    fn fill(roster: &Roster, waiting: u32) -> u32 {
        while roster.call(waiting) == Answer::Comes {
            assert!(roster.wait_for_order(|| false));
            roster.arrive();
        }
        roster.present()
    }

    #[test]
    fn counts_fit_their_word() {
        let counts = Counts { present: 1, ordered: 0x7fff, following: 0x1234, called: 0x7ffe };
        assert_eq!(Counts::unpack(counts.pack()), counts);
        assert_eq!(Counts::unpack(counts.pack() | COMING), counts);
        assert_eq!(counts.pack() & COMING, 0);
    }

    #[test]
    fn each_limit_allows_its_threads() {
        check(|| {
            let roster = Roster::new(LIMITS);
            assert_eq!(fill(&roster, 0), 2);
            assert_eq!(fill(&roster, 1), 3);
            roster.mark(true);
            roster.mark(true);
            assert_eq!(fill(&roster, 1), 4);
            assert_eq!(fill(&roster, 10), 5);
        });
    }

    #[test]
    fn spare_threads_are_ordered_up_to_their_number_and_the_limit() {
        check(|| {
            let limits = Limits { threads_min: 1, threads_max: 1, io_max: 0, waiting_max: 9 };
            let roster = Roster::new(limits);
            for (waiting, present) in [(0, 1), (2, 3), (9, 5), (9, 5)] {
                (0..9).for_each(|_| roster.order_spare(waiting));
                assert_eq!(roster.present(), present, "{waiting} threads wait");
            }
            for _ in 0..4 {
                assert!(roster.wait_for_order(|| false));
                roster.arrive();
                roster.add_follower();
            }
            roster.order_spare(9);
            assert_eq!(roster.present(), 5, "four threads follow");
            assert_eq!(roster.call(9), Answer::Comes);
            roster.order_spare(9);
            assert_eq!(roster.present(), 6, "one of them was called");
        });
    }

    #[test]
    fn one_thread_is_called_at_a_time() {
        check(|| {
            let roster = Roster::new(Limits::fixed(3));
            roster.add_follower();
            roster.add_follower();
            assert_eq!(roster.call(0), Answer::Comes);
            assert_eq!(roster.call(0), Answer::Comes);
            assert_eq!(roster.counts().called, 1);
            assert_eq!(roster.wait(|| false, || 1), WaitOutcome::Over);
            roster.remove_follower();
            assert_eq!(roster.call(0), Answer::Comes);
            assert_eq!(roster.wait(|| false, || 1), WaitOutcome::Over);
            roster.remove_follower();
            assert_eq!(roster.call(0), Answer::Nobody);
        });
    }

    #[test]
    fn a_call_rings_the_bells_of_followers_that_wait_for_more() {
        check(|| {
            let roster = Roster::new(Limits::fixed(2));
            let rings = std::sync::Arc::new(AtomicU32::new(0));
            let counted = std::sync::Arc::clone(&rings);
            let ring = Box::new(move || {
                counted.fetch_add(1, Ordering::SeqCst);
            });
            roster.add_bell(FollowerBell { number: 1, ring });
            roster.add_follower();
            assert!(!roster.take_call());
            assert_eq!(roster.call(0), Answer::Comes);
            assert_eq!(rings.load(Ordering::SeqCst), 1);
            assert!(roster.take_call() && !roster.take_call());
            roster.remove_follower();
            roster.remove_bell(1);
            roster.add_follower();
            assert_eq!(roster.call(0), Answer::Comes);
            assert_eq!(rings.load(Ordering::SeqCst), 1);
        });
    }

    #[test]
    fn a_thread_that_no_call_needed_for_a_period_ends() {
        check(|| {
            let roster = Roster::new(LIMITS);
            assert_eq!(fill(&roster, 2), 4);
            let idle_us = u64::try_from(IDLE.as_micros()).unwrap();
            let wait = |at_us| roster.wait(|| at_us == 0, || at_us);
            (0..4).for_each(|_| roster.add_follower());
            assert_eq!(wait(0), WaitOutcome::Over, "the period begins with a wait");
            let ends = |at_us| roster.ends_superfluous(&mut roster.lock_period(), at_us);
            assert!(!ends(1));
            assert!(!ends(idle_us));
            assert!(ends(idle_us + 1) && ends(idle_us + 1) && ends(idle_us + 1));
            assert!(!ends(idle_us + 1), "the minimum stays");
            assert_eq!(roster.present(), 1);
        });
    }

    #[test]
    fn threads_that_calls_needed_stay() {
        check(|| {
            let roster = Roster::new(LIMITS);
            assert_eq!(fill(&roster, 2), 4);
            let idle_us = u64::try_from(IDLE.as_micros()).unwrap();
            (0..3).for_each(|_| roster.add_follower());
            let ends = |at_us| roster.ends_superfluous(&mut roster.lock_period(), at_us);
            assert!(!ends(1));
            assert_eq!(roster.call(0), Answer::Comes);
            roster.forget_coming();
            assert_eq!(roster.call(0), Answer::Comes);
            assert!(ends(idle_us + 1), "one of three was never called");
            assert!(!ends(idle_us + 1));
            assert_eq!(roster.present(), 3);
        });
    }
}
