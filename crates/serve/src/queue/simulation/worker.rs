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
    /// The next phase.
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
    /// Since when its request waits, or waited, in this worker.
    pub(super) ready_us: Option<u64>,
    /// When its last request was served.
    pub(super) served_us: Option<u64>,
    /// It asked seldom when it asked last.
    pub(super) asks_seldom: bool,
    /// Requests that had been started when this one became ready.
    pub(super) started_before: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leader {
    /// Waits for events.
    Free,
    /// Stands for the lock.
    Runnable,
    /// Waits for a request of another worker, which goes before its own.
    Asking,
    InService(usize),
    /// It waits in the application, and another thread is about to lead.
    Promoting,
    /// Every thread is in a request.
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
    /// The request that holds the lock, and what is left of its phase in microseconds.
    pub(super) lock: Option<(usize, f64)>,
    pub(super) standing: VecDeque<Runnable>,
    pub(super) queue: RunQueue,
    pub(super) round: MeanInterval,
    pub(super) rests: MeanInterval,
    /// A request was taken while others waited for the lock.
    pub(super) has_passed: bool,
    pub(super) has_asked: bool,
    /// Connections on their way here.
    pub(super) coming: usize,
    /// The cost of moves while nothing computed.
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
            standing: VecDeque::new(),
            queue: RunQueue::default(),
            round: MeanInterval::default(),
            rests: MeanInterval::default(),
            has_passed: false,
            has_asked: false,
            coming: 0,
            debt_us: 0.0,
        }
    }

    /// Threads that hold the lock or wait for it.
    pub(super) fn computing(&self) -> usize {
        self.standing.len() + usize::from(self.lock.is_some())
    }
}
