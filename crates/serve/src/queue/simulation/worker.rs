//! The state of the model: connections, requests, and workers with their threads.

use std::collections::VecDeque;

use thruway_testing::Random;

use super::workload::{Habit, Phase};
use crate::queue::mean_interval::MeanInterval;
use crate::queue::run_queue::RunQueue;

#[derive(Debug)]
pub(super) struct Request {
    pub(super) came_us: f64,
    pub(super) phases: Vec<Phase>,
    /// The index of the next phase.
    pub(super) phase: usize,
    pub(super) is_heavy: bool,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) habit: Habit,
    pub(super) random: Random,
    pub(super) worker: usize,
    pub(super) pending: VecDeque<Request>,
    pub(super) in_service: Option<Request>,
    /// When the current or last request began to wait in this worker.
    pub(super) ready_us: Option<u64>,
    /// When the last request was served.
    pub(super) served_us: Option<u64>,
    /// Whether the client counted as infrequent at its last request.
    pub(super) asks_seldom: bool,
    /// The number of requests started before the current one became ready.
    pub(super) started_before: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leader {
    /// The leader waits for events.
    Free,
    /// The leader waits for the lock.
    Runnable,
    /// The leader waits for a sibling's request, which goes before the worker's own.
    Asking,
    InService(usize),
    /// The leader waits in the application, and another thread is about to lead.
    Promoting,
    /// Every thread has a request.
    Vacant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Runnable {
    Leader,
    Request(usize),
}

#[derive(Debug)]
pub(super) struct Worker {
    pub(super) free: usize,
    pub(super) leader: Leader,
    /// The request that holds the lock, and the rest of its phase in microseconds.
    pub(super) lock: Option<(usize, f64)>,
    /// When the phase of that request began.
    pub(super) computes_since_us: Option<u64>,
    pub(super) standing: VecDeque<Runnable>,
    pub(super) queue: RunQueue,
    pub(super) round: MeanInterval,
    pub(super) pauses: MeanInterval,
    /// Whether a request was taken while others waited for the lock.
    pub(super) has_passed: bool,
    pub(super) has_asked: bool,
    /// The number of connections on their way to the worker.
    pub(super) coming: usize,
    /// The cost of moves while no thread computed.
    pub(super) debt_us: f64,
}

impl Connection {
    pub(super) fn new(habit: Habit, random: Random, worker: usize) -> Self {
        Self {
            habit,
            random,
            worker,
            pending: VecDeque::new(),
            in_service: None,
            ready_us: None,
            served_us: None,
            asks_seldom: false,
            started_before: 0,
        }
    }

    pub(super) fn next_phase(&mut self) -> Option<Phase> {
        let request = self.in_service.as_mut()?;
        request.phase += 1;
        request.phases.get(request.phase - 1).copied()
    }
}

impl Worker {
    pub(super) fn new(threads: usize) -> Self {
        Self {
            free: threads,
            leader: Leader::Free,
            lock: None,
            computes_since_us: None,
            standing: VecDeque::new(),
            queue: RunQueue::default(),
            round: MeanInterval::default(),
            pauses: MeanInterval::default(),
            has_passed: false,
            has_asked: false,
            coming: 0,
            debt_us: 0.0,
        }
    }

    /// The number of threads that hold the lock or wait for it.
    pub(super) fn computing(&self) -> usize {
        self.standing.len() + usize::from(self.lock.is_some())
    }
}
