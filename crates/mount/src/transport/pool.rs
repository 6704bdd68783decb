//! Threads for slow requests, so that the requests behind them need not wait.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use thruway_fuse::{Frame, Reply};

use super::handler::RequestHandler;
use super::reply::{Outcome, ReplySender};
use crate::inodes::lock;
use crate::schedule::idle_policy::SavedScheduling;
use crate::view::View;

/// The maximum number of threads. Each may be waiting for a disk; further slow requests wait for a thread.
const THREADS_MAX: usize = 64;
/// A thread ends after this time without a job.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// A request as a single buffer, and the sender of its reply.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) bytes: Vec<u8>,
    pub(super) sender: Arc<dyn ReplySender>,
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
    /// The scheduling of the thread that created the pool. Pool threads take it, since they are started by readers,
    /// whose scheduling they would inherit.
    scheduling: SavedScheduling,
    state: Mutex<State>,
    changed: Condvar,
}

impl Pool {
    pub(crate) fn new(view: &Arc<View>) -> Arc<Self> {
        let scheduling = SavedScheduling::of_current_thread();
        let (state, changed) = Default::default();
        Arc::new(Self { view: Arc::clone(view), scheduling, state, changed })
    }

    /// Queues the request for another thread.
    pub(super) fn submit(self: &Arc<Self>, job: Job) {
        let mut state = lock(&self.state);
        state.jobs.push_back(job);
        if state.idle > 0 || state.threads == THREADS_MAX {
            self.changed.notify_one();
            return;
        }
        state.threads += 1;
        drop(state);
        let pool = Arc::clone(self);
        let started = thread::Builder::new().name("slow".into()).spawn(move || pool.run_thread());
        if started.is_err() {
            self.fail_without_threads();
        }
    }

    /// Fails all jobs if no thread could be started and none is running, since then no job would ever be served.
    fn fail_without_threads(&self) {
        lock(&self.state).threads -= 1;
        while lock(&self.state).threads == 0 {
            let Some(job) = lock(&self.state).jobs.pop_front() else { return };
            job.fail(Errno::NOMEM);
        }
    }

    fn run_thread(&self) {
        self.scheduling.restore();
        let mut handler = RequestHandler::new(&self.view);
        while let Some(job) = self.next() {
            match &mut handler {
                Ok(handler) => job.serve(handler),
                Err(errno) => job.fail(*errno),
            }
        }
    }

    /// Waits for the next job. Returns `None` after [`IDLE_TIMEOUT`].
    fn next(&self) -> Option<Job> {
        let mut state = lock(&self.state);
        if let Some(job) = state.jobs.pop_front() {
            return Some(job);
        }
        state.idle += 1;
        let waited =
            self.changed.wait_timeout_while(state, IDLE_TIMEOUT, |state| state.jobs.is_empty());
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.idle -= 1;
        let job = state.jobs.pop_front();
        if job.is_none() {
            state.threads -= 1;
        }
        job
    }
}

impl Job {
    fn serve(&self, handler: &mut RequestHandler) {
        // The request was already parsed once before it became a job.
        let Ok(frame) = Frame::from_bytes(&self.bytes) else { return };
        let Ok(request) = frame.request() else { return };
        if handler.serve(&request, &self.sender) == Outcome::Replied {
            self.sender.send(request.unique, handler.reply());
        }
    }

    fn fail(&self, errno: Errno) {
        let mut reply = Reply::default();
        reply.fail(errno.raw_os_error());
        if let Ok(frame) = Frame::from_bytes(&self.bytes) {
            self.sender.send(frame.unique(), &mut reply);
        }
    }
}
