//! The choice of the leading thread: the Leader/Followers pattern.
//!
//! One thread of a process leads: it waits for events, reads, calls the application and writes. The leader hands
//! nothing to another thread, because a hand-off costs more than a short request. The others follow: they wait without
//! the interpreter lock. A follower takes over only while the leader is blocked in the application, or has computed
//! there for long. The old leader finishes its request and follows.
//!
//! The standby notices that the leader blocks while requests wait, and calls a follower. With applications that block
//! all the time, this detection would delay each request. So the leader then calls a follower *before* it enters the
//! application. The follower queues for the lock, and gets the lock as soon as the leader releases it.

use std::cell::{Cell, RefCell};

use crate::duty::Bell;
use crate::load::{Activity, LoadObserver};
use crate::shared::SharedRoles;

/// The share of blocking calls, in thousandths, above which the leader calls a follower before each call.
const CALLS_AHEAD_PERMILLE: i32 = 250;

/// The inverse weight of a new call in the moving averages.
const MEMORY_CALLS: i32 = 16;

/// The mean length of calls up to which responses of an HTTP/2 connection are sent together.
const SHORT_CALL_US: i32 = 100;

/// The mean length of calls above which the standby stands in during each call.
const LONG_CALL_US: i32 = 1_000;

/// The length to which a longer call is limited in the average.
const CALL_US_MAX: i32 = 10_000;

/// The number of a thread in its server, from 0.
pub type ThreadNumber = usize;

/// The leader and its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lead {
    /// No thread leads: the next thread that asks for its role does.
    Vacant,
    /// The leader is at the engine, or between the engine and the application.
    AtEngine(ThreadNumber),
    /// The leader is in the application.
    InApplication(ThreadNumber),
}

/// The role of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The thread serves: it waits for events, reads, and calls the application.
    Lead,
    /// The thread waits until it is called.
    Follow,
}

/// The answer to a thread that asks for its role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The thread has this role.
    Role(Role),
    /// The thread checks whether the leader is blocked, and asks again with [`Leadership::role_after_look`].
    Look(LookAtLeader),
}

/// A leader in the application that is to be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookAtLeader {
    /// The leader's number.
    pub leader: ThreadNumber,
    /// The number of the call that the leader was in.
    call: u64,
}

/// The thread that leads, and the threads left behind in the application. The value is used with the interpreter lock
/// held.
#[derive(Debug)]
pub struct Leadership {
    lead: Cell<Lead>,
    /// The number of threads in the application that no longer lead.
    superseded: Cell<usize>,
    /// Those of them that computed when another thread took the lead.
    computing: RefCell<Vec<ThreadNumber>>,
    /// Whether the last request began while other threads waited for the lock.
    has_kept_lock: Cell<bool>,
    blocking_permille: Cell<i32>,
    /// The moving average of a call's length.
    call_us: Cell<i32>,
}

impl Default for Leadership {
    fn default() -> Self {
        Self {
            lead: Cell::new(Lead::Vacant),
            superseded: Cell::new(0),
            computing: RefCell::default(),
            has_kept_lock: Cell::new(false),
            blocking_permille: Cell::new(0),
            call_us: Cell::new(0),
        }
    }
}

impl Leadership {
    /// Returns the role of thread `me`, which takes the lead if no thread has it. If the leader is in the application,
    /// the role depends on whether the leader is blocked. `thread` is the system's number of thread `me`.
    pub fn role<B: Bell, O: LoadObserver>(
        &self,
        shared: &SharedRoles<B, O>,
        me: ThreadNumber,
        thread: u32,
    ) -> Decision {
        match self.lead.get() {
            Lead::Vacant => Decision::Role(self.take_lead(shared, me, thread)),
            Lead::AtEngine(leader) | Lead::InApplication(leader) if leader == me => {
                Decision::Role(Role::Lead)
            }
            Lead::AtEngine(_) => Decision::Role(Role::Follow),
            Lead::InApplication(leader) => {
                Decision::Look(LookAtLeader { leader, call: shared.calls() })
            }
        }
    }

    /// Returns the role of thread `me`, which has checked whether the leader is blocked. None if other threads ran in
    /// the meantime, so that the leader may be back or gone: the thread then asks again.
    pub fn role_after_look<B: Bell, O: LoadObserver>(
        &self,
        shared: &SharedRoles<B, O>,
        me: ThreadNumber,
        thread: u32,
        look: LookAtLeader,
        is_blocked: bool,
    ) -> Option<Role> {
        if shared.calls() != look.call || self.lead.get() != Lead::InApplication(look.leader) {
            return None;
        }
        if is_blocked {
            shared.load.note_blocked();
        } else if shared.is_in_long_call() {
            self.computing.borrow_mut().push(look.leader);
            shared.load.note_superseded();
        } else {
            return Some(Role::Follow);
        }
        self.superseded.set(self.superseded.get() + 1);
        // Calls may block for seconds, and the next ones are about to.
        remember(&self.blocking_permille, 1000);
        Some(self.take_lead(shared, me, thread))
    }

    fn take_lead<B: Bell, O: LoadObserver>(
        &self,
        shared: &SharedRoles<B, O>,
        me: ThreadNumber,
        thread: u32,
    ) -> Role {
        self.lead.set(Lead::AtEngine(me));
        shared.note_leader(thread);
        Role::Lead
    }

    /// Whether thread `me` leads.
    pub fn leads(&self, me: ThreadNumber) -> bool {
        matches!(self.lead.get(), Lead::AtEngine(leader) | Lead::InApplication(leader) if leader == me)
    }

    /// Whether the mean length of a call is within the time that a response may wait for others of its connection.
    pub fn calls_are_short(&self) -> bool {
        self.call_us.get() <= SHORT_CALL_US
    }

    /// Gives up the lead, and calls a follower to take over.
    pub fn release<B: Bell, O: LoadObserver>(&self, shared: &SharedRoles<B, O>, me: ThreadNumber) {
        if self.leads(me) {
            self.lead.set(Lead::Vacant);
            shared.forget_coming();
            shared.call_successor();
        }
    }

    /// Replaces thread `me`, which ends early, by another follower.
    pub fn resign<B: Bell, O: LoadObserver>(&self, shared: &SharedRoles<B, O>, me: ThreadNumber) {
        self.release(shared, me);
        shared.forget_coming();
        shared.call_successor();
    }

    /// Records that the leader is about to call the application. `waits` is whether anything else waits at the engine.
    pub fn enter_application<B: Bell, O: LoadObserver>(
        &self,
        shared: &SharedRoles<B, O>,
        activity: &Activity,
        waits: bool,
    ) {
        if let Lead::AtEngine(leader) = self.lead.get() {
            self.lead.set(Lead::InApplication(leader));
        }
        shared.load.enter(activity);
        shared.note_call(self.call_us.get() > LONG_CALL_US, waits);
        if self.blocking_permille.get() > CALLS_AHEAD_PERMILLE {
            if shared.has_followers() {
                shared.call_successor();
            }
            if waits {
                shared.order_spare();
            }
        }
    }

    /// Records that the application has returned to `me` after `took_us`. Thread `me` may have lost the lead.
    pub fn leave_application<B: Bell, O: LoadObserver>(
        &self,
        shared: &SharedRoles<B, O>,
        activity: &Activity,
        me: ThreadNumber,
        took_us: u64,
    ) {
        let leads = self.leads(me);
        shared.load.leave(activity, leads);
        if leads {
            self.lead.set(Lead::AtEngine(me));
            shared.note_return();
        } else {
            self.return_superseded(shared, me);
        }
        let took_us = i32::try_from(took_us).map_or(CALL_US_MAX, |us| us.min(CALL_US_MAX));
        remember(&self.call_us, took_us);
        if leads && shared.has_followers() {
            remember(&self.blocking_permille, 0);
        }
    }

    /// Records that a follower continues a request of its own that had waited in a fiber. The follower then computes
    /// beside the leader.
    pub fn enter_beside<B: Bell, O: LoadObserver>(
        &self,
        shared: &SharedRoles<B, O>,
        activity: &Activity,
    ) {
        self.superseded.set(self.superseded.get() + 1);
        shared.load.enter_beside(activity);
    }

    /// Records that the thread that called [`enter_beside`](Self::enter_beside) is back.
    pub fn leave_beside<B: Bell, O: LoadObserver>(
        &self,
        shared: &SharedRoles<B, O>,
        activity: &Activity,
    ) {
        self.superseded.set(self.superseded.get().saturating_sub(1));
        shared.load.leave_beside(activity);
    }

    fn return_superseded<B: Bell, O: LoadObserver>(
        &self,
        shared: &SharedRoles<B, O>,
        me: ThreadNumber,
    ) {
        self.superseded.set(self.superseded.get().saturating_sub(1));
        let mut computing = self.computing.borrow_mut();
        if let Some(at) = computing.iter().position(|thread| *thread == me) {
            computing.swap_remove(at);
            shared.load.forget_superseded();
        }
    }

    /// Whether another thread takes the lead if thread `me` blocks now: `me` leads, and not all others are in the
    /// application.
    pub fn has_successor<B: Bell, O: LoadObserver>(
        &self,
        shared: &SharedRoles<B, O>,
        me: ThreadNumber,
    ) -> bool {
        self.leads(me) && self.superseded.get() + 1 < shared.threads() as usize
    }

    /// Whether the leader has to pass the lock on before its next request. The leader passes it on before every second
    /// request, to threads that wait for the lock in the application. If those threads always went first, fewer
    /// requests would start, and fewer waits would overlap.
    pub fn passes_lock<B: Bell, O: LoadObserver>(&self, shared: &SharedRoles<B, O>) -> bool {
        let load = &shared.load;
        let others_stand =
            self.superseded.get() > 0 && (!load.is_reported() || load.computing() > 0);
        let passes = others_stand && self.has_kept_lock.get();
        self.has_kept_lock.set(others_stand && !passes);
        if passes {
            shared.summon_standby();
        }
        passes
    }
}

fn remember(average: &Cell<i32>, sample: i32) {
    let now = average.get();
    average.set(now + (sample - now) / MEMORY_CALLS);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::roster::Limits;

    struct Silent;

    impl Bell for Silent {
        fn ring(&self) {}

        fn wait(&self, _timeout: Option<Duration>) {}

        fn silence(&self) {}
    }

    struct Server {
        leadership: Leadership,
        shared: SharedRoles<Silent, ()>,
        activity: Activity,
    }

    impl Server {
        /// Creates roles in which thread 0 leads and has called the application.
        fn calling() -> Self {
            let server = Self {
                leadership: Leadership::default(),
                shared: SharedRoles::new(Silent, (), Limits::fixed(2)),
                activity: Activity::new(),
            };
            assert_eq!(server.leadership.role(&server.shared, 0, 10), Decision::Role(Role::Lead));
            server.enter();
            server
        }

        fn enter(&self) {
            self.leadership.enter_application(&self.shared, &self.activity, false);
        }

        fn leave(&self) {
            self.leadership.leave_application(&self.shared, &self.activity, 0, 10);
        }

        /// Returns the role of thread 1, if `event` happens while the thread looks at the leader.
        fn role_if(&self, is_blocked: bool, event: impl FnOnce()) -> Option<Role> {
            let look = match self.leadership.role(&self.shared, 1, 11) {
                Decision::Role(role) => return Some(role),
                Decision::Look(look) => look,
            };
            assert_eq!(look.leader, 0);
            event();
            self.leadership.role_after_look(&self.shared, 1, 11, look, is_blocked)
        }
    }

    /// Runs a test in one exploration, outside which the atomics do not work.
    fn check(test: impl Fn() + Send + Sync + 'static) {
        shuttle::check_random(test, 1);
    }

    #[test]
    fn a_follower_leads_if_the_leader_is_blocked() {
        check(|| {
            let server = Server::calling();
            assert_eq!(server.role_if(false, || ()), Some(Role::Follow));
            assert_eq!(server.role_if(true, || ()), Some(Role::Lead));
            assert!(server.leadership.leads(1));
        });
    }

    #[test]
    fn a_leader_that_returns_meanwhile_keeps_the_lead() {
        check(|| {
            let server = Server::calling();
            assert_eq!(server.role_if(true, || server.leave()), None);
            assert!(server.leadership.leads(0));
            assert_eq!(server.role_if(true, || ()), Some(Role::Follow));
        });
    }

    #[test]
    fn a_leader_that_ends_meanwhile_is_not_followed() {
        check(|| {
            let server = Server::calling();
            let end = || {
                server.leave();
                server.leadership.release(&server.shared, 0);
            };
            assert_eq!(server.role_if(false, end), None);
            assert_eq!(server.role_if(false, || ()), Some(Role::Lead));
        });
    }

    #[test]
    fn another_call_of_the_leader_is_looked_at_anew() {
        check(|| {
            let server = Server::calling();
            let again = || {
                server.leave();
                server.enter();
            };
            assert_eq!(server.role_if(true, again), None);
            assert!(server.leadership.leads(0));
        });
    }

    #[test]
    fn a_leader_that_wants_the_lock_counts_as_blocked_after_a_long_wait_alone() {
        check(|| {
            let server = Server::calling();
            let shared = &server.shared;
            shared.load.set_reported();
            let suspended = |is_suspended, at_us| {
                shared.note_suspension(is_suspended, &server.activity, || 10, || at_us);
            };
            suspended(true, 1_000);
            assert!(shared.is_leader_blocked(), "it waits");
            suspended(false, 1_000 + crate::shared::PATIENCE_US - 1);
            assert!(!shared.is_leader_blocked(), "its wait was short");
            suspended(true, 2_000);
            suspended(false, 2_000 + crate::shared::PATIENCE_US);
            assert!(shared.is_leader_blocked());
            server.leave();
            server.enter();
            assert!(!shared.is_leader_blocked(), "it is another call");
        });
    }

    #[test]
    fn the_number_of_a_thread_that_releases_the_lock_is_asked_for_only_during_a_call() {
        check(|| {
            let server = Server::calling();
            let asked = Cell::new(0);
            let number = || {
                asked.set(asked.get() + 1);
                10
            };
            let pause = || {
                server.shared.note_suspension(true, &server.activity, number, || 1);
                server.shared.note_suspension(false, &server.activity, number, || 2);
            };
            pause();
            assert_eq!(asked.take(), 2);
            server.leave();
            pause();
            assert_eq!(asked.take(), 0, "the leader is at the engine");
        });
    }

    #[test]
    fn a_superseded_leader_that_waits_lets_another_thread_start() {
        check(|| {
            let limits = Limits { threads_min: 1, threads_max: 1, io_max: 0, waiting_max: 2 };
            let shared = SharedRoles::new(Silent, (), limits);
            let leadership = Leadership::default();
            let activities = [Activity::new(), Activity::new(), Activity::new()];
            let order_behind_blocked_leader = || {
                shared.load.note_blocked();
                shared.set_awaited(true);
                let is_wanted = shared.wants_successor();
                shared.call_successor();
                shared.arrive();
                is_wanted
            };
            let _ = leadership.role(&shared, 0, 10);
            leadership.enter_application(&shared, &activities[0], true);
            assert!(order_behind_blocked_leader());
            // The leader has regained the interpreter lock when the ordered thread looks.
            shared.note_long_call(shared.calls());
            let Decision::Look(look) = leadership.role(&shared, 1, 11) else {
                panic!("a thread leads");
            };
            let role = leadership.role_after_look(&shared, 1, 11, look, false);
            assert_eq!(role, Some(Role::Lead));
            leadership.enter_application(&shared, &activities[1], true);
            assert!(order_behind_blocked_leader());
            assert_eq!(shared.threads(), 3, "two of them wait, one computes or waits");
            let Decision::Look(look) = leadership.role(&shared, 2, 12) else {
                panic!("a thread leads");
            };
            assert_eq!(leadership.role_after_look(&shared, 2, 12, look, true), Some(Role::Lead));
            leadership.enter_application(&shared, &activities[2], true);
            assert!(!order_behind_blocked_leader());
            assert_eq!(shared.threads(), 3, "no more are allowed");
        });
    }

    #[test]
    fn a_limit_is_noted_once_all_threads_wait_and_none_may_start() {
        let test = || {
            let limits = Limits { threads_min: 1, threads_max: 1, io_max: 0, waiting_max: 1 };
            let shared = SharedRoles::new(Silent, (), limits);
            shared.load.set_reported();
            let (leadership, activities) =
                (Leadership::default(), [Activity::new(), Activity::new()]);
            for (me, thread, activity) in [(0, 10, &activities[0]), (1, 11, &activities[1])] {
                if me == 1 {
                    let Decision::Look(look) = leadership.role(&shared, me, thread) else {
                        panic!("a thread leads");
                    };
                    let role = leadership.role_after_look(&shared, me, thread, look, true);
                    assert_eq!(role, Some(Role::Lead));
                }
                let _ = leadership.role(&shared, me, thread);
                leadership.enter_application(&shared, activity, true);
                shared.set_awaited(true);
                let _ = shared.wants_successor();
                assert!(!shared.take_at_limit(), "thread {me} computes");
                shared.note_suspension(true, activity, || thread, || 1);
                if me == 0 {
                    assert!(shared.wants_successor());
                    shared.call_successor();
                    shared.arrive();
                    assert!(!shared.take_at_limit(), "one more may start");
                }
            }
            assert!(!shared.wants_successor());
            assert!(shared.take_at_limit() && !shared.take_at_limit());
        };
        shuttle::check_random(test, 1);
    }
}
