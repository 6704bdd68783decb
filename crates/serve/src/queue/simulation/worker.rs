//! A worker of the model: who leads, who holds the lock, and what moves between workers.
//!
//! In each worker one thread leads. It takes the oldest request once it holds the lock. When it waits in the
//! application, another free thread leads. A thread that has finished a request holds the lock, and takes the next
//! one at once; but if others stand for the lock, only every second time.

use std::cmp::Reverse;
use std::collections::VecDeque;

use thruway_testing::Random;

use super::model::{Event, Model};
use super::workload::{Habit, Phase};
use crate::queue::mean_interval::MeanInterval;
use crate::queue::policy::{self, MOVE_AFTER_US, WorkerView};
use crate::queue::run_queue::RunQueue;

/// What a move costs each of the two workers.
const MOVE_COST_US: f64 = 50.0;

/// From one worker to another.
const MESSAGE_US: f64 = 100.0;

/// Longer, if the leader of the worker that is asked is in the application or stands for the lock.
const STANDBY_US: f64 = 300.0;

#[derive(Debug)]
pub(super) struct Request {
    pub(super) came_us: f64,
    pub(super) phases: Vec<Phase>,
    /// The one that comes next.
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
    ready_us: Option<u64>,
    /// When its last request was served.
    pub(super) served_us: Option<u64>,
    /// Requests that had been started when this one became ready.
    pub(super) started_before: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leader {
    /// Waits for events.
    Free,
    /// Stands for the lock.
    Standing,
    /// Waits for a request of another worker, which goes before its own.
    Asking,
    InService(usize),
    /// It waits in the application, and another thread is about to lead.
    Promoting,
    /// Every thread is in a request.
    Vacant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Leader,
    Request(usize),
}

#[derive(Debug)]
pub(super) struct Worker {
    pub(super) free: usize,
    pub(super) leader: Leader,
    /// The request that holds the lock, and what is left of its phase in microseconds.
    pub(super) lock: Option<(usize, f64)>,
    pub(super) standing: VecDeque<Standing>,
    queue: RunQueue,
    round: MeanInterval,
    rests: MeanInterval,
    /// A request was taken while others stood for the lock.
    has_passed: bool,
    has_asked: bool,
    /// Connections on their way here.
    coming: usize,
    /// What moves have cost while nothing computed.
    debt_us: f64,
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

    /// Threads that hold the lock or stand for it.
    fn computing(&self) -> usize {
        self.standing.len() + usize::from(self.lock.is_some())
    }
}

impl Model {
    /// A connection's next request is ready.
    pub(super) fn enqueue(&mut self, place: usize) {
        let connection = &mut self.connections[place];
        connection.started_before = self.started;
        if self.setup.is_central {
            return self.central.push_back(place);
        }
        let ready_us = self.now_us as u64;
        let worker = &mut self.workers[connection.worker];
        let interval_us = connection.ready_us.map_or(0, |last_us| ready_us - last_us);
        if connection.ready_us.replace(ready_us).is_some() {
            worker.round.note(interval_us);
        }
        let rest_us =
            connection.served_us.map_or(0, |served_us| ready_us.saturating_sub(served_us));
        worker.rests.note(rest_us.max(policy::REST_US_MIN));
        let key_us = policy::key_us(ready_us, interval_us, rest_us, &worker.round, &worker.rests);
        worker.queue.enqueue(place as u32, key_us);
        let due = Event::Due(connection.worker);
        self.after(MOVE_AFTER_US as f64 + 1.0, due);
    }

    /// What a thread does between two requests.
    pub(super) fn look(&mut self, worker: usize) {
        if self.setup.is_central {
            return self.dispatch();
        }
        let state = &mut self.workers[worker];
        if state.leader == Leader::Free && state.queue.len() > 0 {
            state.leader = Leader::Standing;
            state.standing.push_back(Standing::Leader);
            self.grant(worker);
        }
        if self.workers[worker].queue.len() == 0 {
            self.ask(worker);
        }
        self.give(worker);
    }

    /// A thread has finished a request, and holds the lock.
    pub(super) fn go_on(&mut self, worker: usize) {
        let state = &mut self.workers[worker];
        let passes = !state.standing.is_empty();
        let yields = passes && state.has_passed;
        state.has_passed = passes && !yields;
        if yields || self.setup.is_central {
            return;
        }
        self.ask_or_take(worker);
    }

    /// Before each request that it takes, a thread looks whether a sibling has an older one.
    fn ask_or_take(&mut self, worker: usize) {
        let asks = self.workers[worker].queue.len() > 0 && self.ask(worker);
        if asks && self.workers[worker].leader == Leader::Free {
            self.workers[worker].leader = Leader::Asking;
        } else {
            self.take(worker);
        }
    }

    /// Gives the lock to the threads that stand for it, until one computes.
    pub(super) fn grant(&mut self, worker: usize) {
        while self.workers[worker].lock.is_none() {
            match self.workers[worker].standing.pop_front() {
                None => return,
                Some(Standing::Request(place)) => self.compute(place),
                Some(Standing::Leader) => {
                    self.workers[worker].leader = Leader::Free;
                    self.ask_or_take(worker);
                }
            }
        }
    }

    /// A thread that holds the lock takes the oldest request.
    fn take(&mut self, worker: usize) {
        let state = &mut self.workers[worker];
        let Some((slot, _)) = state.queue.next() else { return };
        let place = slot as usize;
        if state.leader == Leader::Free {
            state.leader = Leader::InService(place);
        }
        self.start(place, worker);
        match self.connections[place].next_phase() {
            Some(Phase::Wait(length_us)) => self.wait(place, length_us),
            _ => self.compute(place),
        }
    }

    fn compute(&mut self, place: usize) {
        let connection = &self.connections[place];
        let worker = &mut self.workers[connection.worker];
        let request = connection.in_service.as_ref();
        if let Some(Phase::Compute(length_us)) =
            request.map(|request| request.phases[request.phase - 1])
        {
            worker.lock = Some((place, length_us + std::mem::take(&mut worker.debt_us)));
        }
    }

    /// Whether it waits for an answer.
    fn ask(&mut self, asker: usize) -> bool {
        if self.workers[asker].has_asked {
            return false;
        }
        self.view();
        let state = &self.workers[asker];
        let (next_us, round_us) = (state.queue.oldest_us(), state.round.us());
        let now_us = self.now_us as u64;
        let Some(giver) = policy::ask_from(&self.views, asker, now_us, next_us, round_us) else {
            return false;
        };
        self.workers[asker].has_asked = true;
        let is_away = matches!(self.workers[giver].leader, Leader::InService(_) | Leader::Standing);
        let delay_us = MESSAGE_US + if is_away { STANDBY_US } else { 0.0 };
        self.after(delay_us, Event::Asked { giver, asker });
        true
    }

    pub(super) fn answer_asker(&mut self, giver: usize, asker: usize) {
        self.workers[asker].has_asked = false;
        if self.workers[asker].leader == Leader::Asking {
            self.workers[asker].leader = Leader::Free;
        }
        self.view();
        if policy::answers(&self.views, giver, asker, self.now_us as u64) {
            self.send(giver, asker, 0.0);
        } else {
            self.look(asker);
        }
    }

    pub(super) fn give(&mut self, giver: usize) {
        self.view();
        if let Some(taker) = policy::give_to(&self.views, giver, self.now_us as u64) {
            self.send(giver, taker, MESSAGE_US);
        }
    }

    fn send(&mut self, giver: usize, taker: usize, delay_us: f64) {
        let Some((slot, key_us)) = self.workers[giver].queue.next() else { return };
        for worker in [giver, taker] {
            let state = &mut self.workers[worker];
            let debt_us = state.lock.as_mut().map_or(&mut state.debt_us, |(_, left_us)| left_us);
            *debt_us += MOVE_COST_US;
        }
        self.outcome.moves += 1;
        self.workers[taker].coming += 1;
        self.after(delay_us, Event::Moved { place: slot as usize, key_us, taker });
    }

    /// A connection comes from another worker, and keeps its key.
    pub(super) fn receive(&mut self, place: usize, key_us: u64, taker: usize) {
        self.connections[place].worker = taker;
        self.connections[place].ready_us = Some(self.now_us as u64);
        self.workers[taker].coming -= 1;
        self.workers[taker].queue.enqueue(place as u32, key_us);
        self.look(taker);
    }

    /// What the workers tell of themselves now.
    fn view(&mut self) {
        let connections = &self.connections;
        let view = |worker: &Worker| {
            let oldest = worker.queue.find_oldest(|_| true);
            let (slot, oldest_us) = oldest.unwrap_or((0, u64::MAX));
            WorkerView {
                is_serving: true,
                free_threads: worker.free as u32,
                computing: worker.computing() as u32,
                waiting: (worker.queue.len() + worker.coming) as u32,
                oldest_us,
                ready_us: connections[slot as usize]
                    .ready_us
                    .filter(|_| oldest.is_some())
                    .unwrap_or(u64::MAX),
            }
        };
        self.views.clear();
        self.views.extend(self.workers.iter().map(view));
    }

    /// The ideal: the oldest goes to the worker with a free thread in which the fewest compute.
    fn dispatch(&mut self) {
        loop {
            let able = (0..self.workers.len()).filter(|at| self.workers[*at].free > 0);
            let load =
                |at: &usize| (self.workers[*at].computing(), Reverse(self.workers[*at].free));
            let Some(worker) = able.min_by_key(load) else { return };
            let Some(place) = self.central.pop_front() else { return };
            self.start(place, worker);
            self.advance(place);
        }
    }
}
