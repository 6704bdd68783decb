//! Requests that are known to compute for long, on their way from the leader to another thread.
//!
//! A request that computes holds up all fibers of its thread. The leader's thread has the most of them, so the leader
//! leaves such a request in the lane, and a follower takes it. One of these requests computes at a time: several would
//! take turns at the interpreter lock, and each of them, and each waiting request, would take longer.
//!
//! | who | does | when |
//! | --- | --- | --- |
//! | the leader | leaves a request | another thread follows, or computes and so comes back |
//! | a follower | takes a request | no other thread computes, or the last request was taken long ago |
//! | the leader | calls a follower | requests are left, and none computes, or the last was taken long ago |
//! | the leader | takes a request | the same, and no thread follows: all others wait in the application |

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use crate::duty::Bell;
use crate::load::LoadObserver;
use crate::shared::SharedRoles;

/// How long one request of the lane may compute before another thread takes the next one beside it, in microseconds:
/// the time after which a computing leader loses the lead.
const ALONE_US: u64 = 1_000_000;

/// The lane of one server. Used with the interpreter lock held.
#[derive(Debug)]
pub struct ComputeLane<J> {
    jobs: RefCell<VecDeque<J>>,
    /// When the last job was taken.
    taken_us: Cell<u64>,
}

impl<J> Default for ComputeLane<J> {
    fn default() -> Self {
        Self { jobs: RefCell::default(), taken_us: Cell::new(0) }
    }
}

impl<J> ComputeLane<J> {
    /// Whether no job is in the lane.
    pub fn is_empty(&self) -> bool {
        self.jobs.borrow().is_empty()
    }

    /// Whether a job that is left now is taken at once.
    pub fn is_idle<B: Bell, O: LoadObserver>(&self, shared: &SharedRoles<B, O>) -> bool {
        self.is_empty() && shared.has_followers() && shared.load.computing() == 0
    }

    /// Calls `visit` with each job in the lane.
    pub fn for_each(&self, visit: impl FnMut(&J)) {
        self.jobs.borrow().iter().for_each(visit);
    }

    /// Whether the leader may leave a job: a follower takes it, or a computing thread that comes back. Where Ruby does
    /// not report releases of the lock, a thread that waits would keep the others from the jobs behind its own.
    pub fn accepts<B: Bell, O: LoadObserver>(&self, shared: &SharedRoles<B, O>) -> bool {
        shared.load.is_reported() && (shared.has_followers() || shared.load.computing() > 0)
    }

    /// Leaves a job, and calls a follower unless another thread computes.
    pub fn leave<B: Bell, O: LoadObserver>(&self, shared: &SharedRoles<B, O>, job: J) {
        self.jobs.borrow_mut().push_back(job);
        self.note_length(shared);
        if shared.load.computing() == 0 {
            shared.call_successor();
        }
    }

    /// Takes a job for the calling thread, which follows and has nothing else to do.
    pub fn take<B: Bell, O: LoadObserver>(
        &self,
        shared: &SharedRoles<B, O>,
        now_us: impl FnOnce() -> u64,
    ) -> Option<J> {
        self.due_us(shared, now_us).and_then(|now_us| self.pop(shared, now_us))
    }

    /// Called by the leader between two turns. Returns a job that no other thread will take; calls a follower to a job
    /// that one may take.
    pub fn attend<B: Bell, O: LoadObserver>(
        &self,
        shared: &SharedRoles<B, O>,
        now_us: impl FnOnce() -> u64,
    ) -> Option<J> {
        let now_us = self.due_us(shared, now_us)?;
        if shared.has_followers() {
            shared.call_successor();
            return None;
        }
        self.pop(shared, now_us)
    }

    /// Returns the time if a job is in the lane and may begin now: no other thread computes, or the last job was taken
    /// long ago.
    fn due_us<B: Bell, O: LoadObserver>(
        &self,
        shared: &SharedRoles<B, O>,
        now_us: impl FnOnce() -> u64,
    ) -> Option<u64> {
        if self.is_empty() {
            return None;
        }
        let now_us = now_us();
        let is_due = shared.load.computing() == 0 || now_us >= self.taken_us.get() + ALONE_US;
        is_due.then_some(now_us)
    }

    fn pop<B: Bell, O: LoadObserver>(&self, shared: &SharedRoles<B, O>, now_us: u64) -> Option<J> {
        let job = self.jobs.borrow_mut().pop_front()?;
        self.taken_us.set(now_us);
        self.note_length(shared);
        Some(job)
    }

    fn note_length<B: Bell, O: LoadObserver>(&self, shared: &SharedRoles<B, O>) {
        shared.note_left(self.jobs.borrow().len());
    }
}
