//! Which thread leads, with the interpreter lock held: `thruway_roles::Leadership` and its shared part.

use std::sync::Arc;

use thruway_roles::{AtomicFlag, Decision, Role, ThreadNumber, WaitOutcome};
use thruway_serve::monotonic_us;

use super::roles::{Roles, thread_number, with_activity};
use crate::ruby::{Gvl, NonLocalExit, thread};

/// The leadership of one server.
pub(super) struct Leadership {
    state: thruway_roles::Leadership,
    roles: Arc<Roles>,
}

impl Leadership {
    pub(super) fn new(roles: Arc<Roles>) -> Self {
        Self { state: thruway_roles::Leadership::default(), roles }
    }

    /// The roles of the server's threads. They are also used without the interpreter lock.
    pub(super) fn roles(&self) -> &Roles {
        &self.roles
    }

    /// Returns the role of thread `me`: the thread leads if no other does, or if the leader is blocked or computes for
    /// long. None if other threads ran meanwhile, after which the thread asks again.
    ///
    /// # Errors
    /// Those of `leader_is_blocked`.
    pub(super) fn role<E>(
        &self,
        me: ThreadNumber,
        leader_is_blocked: impl FnOnce(ThreadNumber) -> Result<bool, E>,
    ) -> Result<Option<Role>, E> {
        match self.state.role(&self.roles, me, thread_number()) {
            Decision::Look(look) => {
                let is_blocked = leader_is_blocked(look.leader)?;
                let thread = thread_number();
                Ok(self.state.role_after_look(&self.roles, me, thread, look, is_blocked))
            }
            Decision::Role(role) => Ok(Some(role)),
        }
    }

    pub(super) fn leads(&self, me: ThreadNumber) -> bool {
        self.state.leads(me)
    }

    /// Whether the average call is short enough for a response to wait for others of its connection.
    pub(super) fn calls_are_short(&self) -> bool {
        self.state.calls_are_short()
    }

    /// Gives up the lead, and calls a follower to take it.
    pub(super) fn release(&self, me: ThreadNumber) {
        self.state.release(&self.roles, me);
    }

    /// Called when thread `me` ends early: calls another follower in its place.
    pub(super) fn resign(&self, me: ThreadNumber) {
        self.state.resign(&self.roles, me);
    }

    /// Called before the leader calls the application. `waits` states whether other work waits at the engine. Returns
    /// the time.
    pub(super) fn enter_application(&self, waits: bool) -> u64 {
        with_activity(|activity| self.state.enter_application(&self.roles, activity, waits));
        monotonic_us()
    }

    /// Called after the application has returned to `me`, which called it at `entered_us` and may no longer lead.
    pub(super) fn leave_application(&self, me: ThreadNumber, entered_us: u64) {
        let took_us = monotonic_us().saturating_sub(entered_us);
        self.roles.load.observer().note_call(took_us);
        with_activity(|activity| self.state.leave_application(&self.roles, activity, me, took_us));
    }

    /// Called before a fiber goes on, by a thread that `leads` or not. `waits` states whether other work waits at the
    /// engine. Returns the time.
    pub(super) fn enter_slice(&self, leads: bool, waits: bool) -> u64 {
        if leads {
            return self.enter_application(waits);
        }
        with_activity(|activity| self.state.enter_beside(&self.roles, activity));
        monotonic_us()
    }

    /// Records that a fiber has paused or ended, so that the thread is free again. `led` is whether the thread was the
    /// leader when the fiber continued. Returns the time since `entered_us`.
    pub(super) fn leave_slice(&self, led: bool, me: ThreadNumber, entered_us: u64) -> u64 {
        let took_us = monotonic_us().saturating_sub(entered_us);
        with_activity(|activity| {
            if led {
                self.state.leave_application(&self.roles, activity, me, took_us);
            } else {
                self.state.leave_beside(&self.roles, activity);
            }
        });
        took_us
    }

    /// Whether another thread takes the lead if thread `me` blocks now.
    pub(super) fn has_successor(&self, me: ThreadNumber) -> bool {
        self.state.has_successor(&self.roles, me)
    }

    /// Lets the threads that wait for the lock in the application go first, if it is their turn.
    pub(super) fn pass_lock(&self, gvl: Gvl) -> Result<(), NonLocalExit> {
        if self.state.passes_lock(&self.roles) {
            gvl.catch(thread::yield_now)?;
        }
        Ok(())
    }

    /// The number of threads has changed.
    pub(super) fn note_threads(&self) {
        let roles = &self.roles;
        let figures = roles.load.observer();
        figures.set_threads(roles.threads().max(roles.limits().threads_max));
    }

    /// Waits, without the interpreter lock, until one more thread is to be started; false if none is any more.
    pub(super) fn wait_for_order(&self, gvl: Gvl) -> bool {
        let (is_ended, roles) = (AtomicFlag::default(), &*self.roles);
        let mut is_ordered = false;
        gvl.release(
            || is_ordered = roles.wait_for_order(&is_ended),
            || roles.end_order_wait(&is_ended),
        );
        is_ordered
    }

    /// Waits, without the interpreter lock, until this follower is called, or is superfluous.
    pub(super) fn follow(&self, gvl: Gvl) -> WaitOutcome {
        let (is_ended, roles) = (AtomicFlag::default(), &*self.roles);
        let mut waited = WaitOutcome::Over;
        roles.add_follower();
        gvl.release(
            || waited = roles.wait_as_follower(&is_ended, monotonic_us),
            || roles.end_wait(&is_ended),
        );
        if waited == WaitOutcome::Over {
            roles.remove_follower();
        }
        waited
    }
}
