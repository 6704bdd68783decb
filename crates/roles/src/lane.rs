//! Requests that are known to compute for long, on their way from the leader to another thread.
//!
//! A request that computes holds up all fibers of its thread. The leader's thread has the most of them, so the leader
//! leaves such a request in the lane, and a follower takes it. One of these requests computes at a time: several would
//! take turns at the interpreter lock, and each of them, and each waiting request, would take longer.
//!
//! | who | does | when |
//! | --- | --- | --- |
//! | the leader | puts a request into the lane | another thread follows, or computes and will return to the lane |
//! | a follower | takes a request | the lane is due |
//! | the leader | calls a follower | the lane is due, and a thread follows |
//! | the leader | takes a request itself | the lane is due, and no thread follows: all others wait in the application |
//!
//! The lane is due if a request is in it, and either no other thread computes or the last request was taken more than
//! [`ALONE_US`] ago.

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

    /// Whether a follower would take a new job at once.
    pub fn is_idle<B: Bell, O: LoadObserver>(&self, shared: &SharedRoles<B, O>) -> bool {
        self.is_empty() && shared.has_followers() && shared.load.computing() == 0
    }

    /// Calls `visit` with each job in the lane.
    pub fn for_each(&self, visit: impl FnMut(&J)) {
        self.jobs.borrow().iter().for_each(visit);
    }

    /// Whether the leader may put a job into the lane, because another thread will take it: a follower, or a computing
    /// thread when it returns. If Ruby does not report releases of the lock, the leader keeps its jobs, since a thread
    /// that merely waits would count as computing and hold up the rest of the lane.
    pub fn accepts<B: Bell, O: LoadObserver>(&self, shared: &SharedRoles<B, O>) -> bool {
        shared.load.is_reported() && (shared.has_followers() || shared.load.computing() > 0)
    }

    /// Puts a job into the lane, and calls a follower unless another thread computes.
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

    /// Called by the leader between two turns. If the lane is due, calls a follower, or returns a job for the leader if
    /// there is no follower.
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

    /// Returns the current time if the lane is due: a job is in the lane, and no other thread computes or the last job
    /// was taken more than [`ALONE_US`] ago.
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
