//! Threads for requests that take long, so that the ones behind them need not wait.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use thruway_fuse::{Answer, Frame};

use crate::actor::Actor;
use crate::inodes::lock;
use crate::schedule::idle_policy::Standing;
use crate::transport::reply::{Outcome, Replier};
use crate::view::View;

/// Most threads at a time. Each may be waiting for a disk; more requests than this wait for a thread.
const THREADS_MAX: usize = 64;
/// A thread that has had nothing to do for so long ends.
const IDLE: Duration = Duration::from_secs(10);

/// A request in one piece, and where its answer goes.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) bytes: Vec<u8>,
    pub(crate) replier: Arc<dyn Replier>,
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

#[derive(Debug)]
pub(crate) struct Pool {
    view: Arc<View>,
    /// What a reader starts is to have the standing of who made the pool.
    standing: Standing,
    state: Mutex<State>,
    changed: Condvar,
}

impl Pool {
    pub(crate) fn new(view: Arc<View>) -> Arc<Self> {
        let (state, changed) = Default::default();
        Arc::new(Self { view, standing: Standing::own(), state, changed })
    }

    /// Has the request answered by another thread.
    pub(crate) fn submit(self: &Arc<Self>, job: Job) {
        let mut state = lock(&self.state);
        state.jobs.push_back(job);
        if state.idle > 0 || state.threads == THREADS_MAX {
            self.changed.notify_one();
            return;
        }
        state.threads += 1;
        drop(state);
        let pool = Arc::clone(self);
        let started = thread::Builder::new().name("slow".into()).spawn(move || pool.work());
        if started.is_err() {
            self.without_thread();
        }
    }

    /// No thread could be started: if there is none at all, nobody else will answer.
    fn without_thread(&self) {
        lock(&self.state).threads -= 1;
        while lock(&self.state).threads == 0 {
            let Some(job) = lock(&self.state).jobs.pop_front() else { return };
            fail(&job, Errno::NOMEM, &mut Answer::default());
        }
    }

    fn work(&self) {
        self.standing.take();
        let mut answer = Answer::default();
        let mut actor = Actor::new();
        while let Some(job) = self.next() {
            match &mut actor {
                Ok(actor) => self.answer(actor, &job, &mut answer),
                Err(errno) => fail(&job, *errno, &mut answer),
            }
        }
    }

    /// The next job; `None` if there was none for a while.
    fn next(&self) -> Option<Job> {
        let mut state = lock(&self.state);
        if let Some(job) = state.jobs.pop_front() {
            return Some(job);
        }
        state.idle += 1;
        let waited = self.changed.wait_timeout_while(state, IDLE, |state| state.jobs.is_empty());
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.idle -= 1;
        let job = state.jobs.pop_front();
        if job.is_none() {
            state.threads -= 1;
        }
        job
    }

    fn answer(&self, actor: &mut Actor, job: &Job, answer: &mut Answer) {
        let Ok(frame) = Frame::joined(&job.bytes) else { return };
        let Ok(request) = frame.request() else { return };
        if self.view.serve(actor, &job.replier, &request, answer) == Outcome::Answered {
            job.replier.reply(request.unique, answer);
        }
    }
}

fn fail(job: &Job, errno: Errno, answer: &mut Answer) {
    answer.fail(errno.raw_os_error());
    if let Ok(frame) = Frame::joined(&job.bytes) {
        job.replier.reply(frame.unique(), answer);
    }
}
