//! Which thread leads: the Leader/Followers pattern.
//!
//! One thread of a process leads: it waits for events, reads, calls the application and writes. It hands nothing to
//! another thread, because a hand-off costs more than a short request. The others follow: they wait without the
//! interpreter lock. A follower takes over only while the leader is blocked in the application, or has computed there
//! for long. The old leader finishes its request and follows.
//!
//! The standby (see `standby`) notices that the leader blocks while requests wait, and calls a follower. Where
//! applications block all the time, that would delay each request. So the leader then calls a follower *before* it
//! enters the application. The follower queues for the lock, and has it as soon as the leader releases it.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use thruway_serve::monotonic_us;

use super::signal::Signal;
use crate::ruby::{Gvl, thread};

/// A leader that blocks in more than this share of its calls, in thousandths, calls a follower before
/// each.
const CALLS_AHEAD_PERMILLE: i32 = 250;

/// A new call weighs one part in so many in the moving averages.
const MEMORY_CALLS: i32 = 16;

/// Where calls take no longer than this on average, responses of HTTP/2 leave together.
const SHORT_CALL_US: i32 = 100;

/// Where calls take longer than this on average, the standby stands in during each.
const LONG_CALL_US: i32 = 1_000;

/// A longer call counts as one of this length.
const CALL_US_MAX: i32 = 10_000;

/// What a thread is to do next.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Lead,
    Follow,
    /// Other threads have run meanwhile: the leader may be back, or gone. It is to be asked again.
    Open,
}

/// Which thread leads, and what it does. Used with the interpreter lock held, but for its [`Signal`].
pub(super) struct Leadership {
    leader: Cell<Option<usize>>,
    leader_calls: Cell<bool>,
    /// Threads in the application that lead no more.
    superseded: Cell<usize>,
    /// Those of them that computed when another thread took the lead.
    computing: RefCell<Vec<usize>>,
    /// The last request began while other threads waited for the lock.
    has_kept_lock: Cell<bool>,
    blocking_permille: Cell<i32>,
    /// What a call takes on average.
    call_us: Cell<i32>,
    signal: Arc<Signal>,
}

impl Leadership {
    pub(super) fn new(signal: Arc<Signal>) -> Self {
        Self {
            leader: Cell::new(None),
            leader_calls: Cell::new(false),
            superseded: Cell::new(0),
            computing: RefCell::default(),
            has_kept_lock: Cell::new(false),
            blocking_permille: Cell::new(0),
            call_us: Cell::new(0),
            signal,
        }
    }

    pub(super) fn signal(&self) -> &Signal {
        &self.signal
    }

    /// What thread `me` is to do: it takes the lead if no thread has it, or if the leader is blocked or computes for
    /// long.
    ///
    /// # Errors
    /// What `leader_is_blocked` gives.
    pub(super) fn role<E>(
        &self,
        me: usize,
        leader_is_blocked: impl FnOnce(usize) -> Result<bool, E>,
    ) -> Result<Role, E> {
        match self.leader.get() {
            None => Ok(self.take(me)),
            Some(leader) if leader == me => Ok(Role::Lead),
            Some(_) if !self.leader_calls.get() => Ok(Role::Follow),
            Some(leader) => {
                let call = self.signal.calls();
                let is_blocked = leader_is_blocked(leader)?;
                if self.signal.calls() != call {
                    return Ok(Role::Open);
                }
                Ok(self.role_beside(me, leader, is_blocked))
            }
        }
    }

    /// What thread `me` is to do while the leader is in the application.
    fn role_beside(&self, me: usize, leader: usize, is_blocked: bool) -> Role {
        if is_blocked {
            self.signal.load.note_blocked();
        } else if self.signal.is_in_long_call() {
            self.computing.borrow_mut().push(leader);
            self.signal.load.note_superseded();
        } else {
            return Role::Follow;
        }
        self.superseded.set(self.superseded.get() + 1);
        self.take(me)
    }

    fn take(&self, me: usize) -> Role {
        self.leader.set(Some(me));
        self.leader_calls.set(false);
        self.signal.note_leader();
        Role::Lead
    }

    pub(super) fn leads(&self, me: usize) -> bool {
        self.leader.get() == Some(me)
    }

    /// Whether a call takes no longer on average than a response may wait for others of its connection.
    pub(super) fn calls_are_short(&self) -> bool {
        self.call_us.get() <= SHORT_CALL_US
    }

    /// Gives up the lead, and calls a follower to take it.
    pub(super) fn release(&self, me: usize) {
        if self.leads(me) {
            self.leader.set(None);
            self.leader_calls.set(false);
            self.signal.forget_coming();
            self.signal.call_follower();
        }
    }

    /// Thread `me` ends early: another follower is called in its place.
    pub(super) fn resign(&self, me: usize) {
        self.release(me);
        self.signal.forget_coming();
        self.signal.call_follower();
    }

    /// The leader is about to call the application, while something else `waits` at the engine or not; the time.
    pub(super) fn enter_application(&self, waits: bool) -> u64 {
        self.leader_calls.set(true);
        self.signal.load.enter();
        self.signal.note_call(self.call_us.get() > LONG_CALL_US, waits);
        if self.blocking_permille.get() > CALLS_AHEAD_PERMILLE {
            self.signal.call_follower();
        }
        monotonic_us()
    }

    /// The application has returned to `me`, which called it at `entered_us` and may lead no more.
    pub(super) fn leave_application(&self, me: usize, entered_us: u64) {
        let blocked = !self.leads(me);
        self.signal.load.leave(!blocked);
        if blocked {
            self.superseded.set(self.superseded.get().saturating_sub(1));
            let mut computing = self.computing.borrow_mut();
            if let Some(at) = computing.iter().position(|thread| *thread == me) {
                computing.swap_remove(at);
                self.signal.load.forget_superseded();
            }
        } else {
            self.leader_calls.set(false);
            self.signal.note_return();
        }
        let took_us = monotonic_us().saturating_sub(entered_us);
        self.signal.load.note_call(took_us);
        remember(
            &self.call_us,
            i32::try_from(took_us).map_or(CALL_US_MAX, |us| us.min(CALL_US_MAX)),
        );
        if blocked || self.signal.has_followers() {
            remember(&self.blocking_permille, if blocked { 1000 } else { 0 });
        }
    }

    /// Whether another one of so many threads takes the lead if thread `me` blocks now: `me` leads, and not all
    /// others are in the application.
    pub(super) fn has_successor(&self, me: usize, threads: usize) -> bool {
        self.leads(me) && self.superseded.get() + 1 < threads
    }

    /// Between two requests: every second time, the threads that wait for the lock in the application go first. If they
    /// always went first, fewer requests would start, and fewer waits would overlap.
    pub(super) fn pass_lock(&self, gvl: Gvl) {
        let load = &self.signal.load;
        let others_stand = self.superseded.get() > 0 && (!load.is_told() || load.computing() > 0);
        let passes = others_stand && self.has_kept_lock.get();
        self.has_kept_lock.set(others_stand && !passes);
        if passes {
            self.signal.duty.call();
            thread::yield_now(gvl);
        }
    }

    /// Waits, without the interpreter lock, until this follower is called.
    pub(super) fn follow(&self, gvl: Gvl) {
        let is_ended = AtomicBool::new(false);
        self.signal.add_follower();
        let signal = &*self.signal;
        gvl.release(|| signal.wait(&is_ended), || signal.end_wait(&is_ended));
        self.signal.remove_follower();
    }
}

fn remember(average: &Cell<i32>, sample: i32) {
    let now = average.get();
    average.set(now + (sample - now) / MEMORY_CALLS);
}

#[cfg(test)]
mod tests {
    use thruway_serve::{Engine, Settings};

    use super::super::duty::Duty;
    use super::super::load::Load;
    use super::*;

    fn leadership() -> Leadership {
        let engine = Engine::new(Settings::default(), Vec::new(), None).unwrap();
        let signal = Signal::new(Duty::new(engine.handle().bell), Load::new(2, None, None));
        Leadership::new(Arc::new(signal))
    }

    /// What thread 1 is to do, if `happens` while it looks whether the leader is blocked.
    fn role_if(leadership: &Leadership, is_blocked: bool, happens: impl FnOnce()) -> Role {
        let look = |leader| {
            assert_eq!(leader, 0);
            happens();
            Ok::<_, ()>(is_blocked)
        };
        leadership.role(1, look).unwrap()
    }

    /// Thread 0 leads, and has called the application at that time.
    fn calling() -> (Leadership, u64) {
        let leadership = leadership();
        assert!(leadership.role(0, |_| Err(())) == Ok(Role::Lead));
        let entered_us = leadership.enter_application(false);
        (leadership, entered_us)
    }

    #[test]
    fn a_follower_leads_if_the_leader_is_blocked() {
        let (leadership, _) = calling();
        assert!(role_if(&leadership, false, || ()) == Role::Follow);
        assert!(role_if(&leadership, true, || ()) == Role::Lead);
        assert!(leadership.leads(1));
    }

    #[test]
    fn a_leader_that_returns_meanwhile_keeps_the_lead() {
        let (leadership, entered_us) = calling();
        let back = || leadership.leave_application(0, entered_us);
        assert!(role_if(&leadership, true, back) == Role::Open);
        assert!(leadership.leads(0));
        assert!(role_if(&leadership, true, || ()) == Role::Follow);
    }

    #[test]
    fn a_leader_that_ends_meanwhile_is_not_followed() {
        let (leadership, entered_us) = calling();
        let end = || {
            leadership.leave_application(0, entered_us);
            leadership.release(0);
        };
        assert!(role_if(&leadership, false, end) == Role::Open);
        assert!(role_if(&leadership, false, || ()) == Role::Lead);
    }

    #[test]
    fn another_call_of_the_leader_is_looked_at_anew() {
        let (leadership, entered_us) = calling();
        let again = || {
            leadership.leave_application(0, entered_us);
            leadership.enter_application(false);
        };
        assert!(role_if(&leadership, true, again) == Role::Open);
        assert!(leadership.leads(0));
    }
}
