//! A model of a server: workers with threads and an interpreter lock each, on processors that they share.
//!
//! Time is in microseconds. Workers whose lock is held share the processors evenly. The lock is given in the order
//! in which threads ask for it; Ruby's quantum of 100 ms is left out, because no phase computes for so long.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

use thruway_testing::Random;

use super::worker::{Connection, Leader, Request, Standing, Worker};
use super::workload::{Habit, Phase, Shape, pause_us, unit};
use crate::queue::policy::WorkerView;

/// From an answer to the next request of a greedy client.
const THINK_US: f64 = 100.0;

/// Until another thread leads after the leader has begun to wait.
const PROMOTE_US: f64 = 50.0;

#[derive(Debug, Clone)]
pub(super) struct Setup {
    pub(super) workers: usize,
    pub(super) threads: usize,
    pub(super) processors: usize,
    pub(super) shape: Shape,
    pub(super) habits: Vec<Habit>,
    /// Requests a second of an open loop, each on a random connection whose habit is [`Habit::Open`].
    pub(super) open_per_second: Option<f64>,
    /// One queue in the order of arrival for all threads: the ideal.
    pub(super) is_central: bool,
    pub(super) seconds: f64,
    pub(super) seed: u64,
}

/// What was served.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// By connection: when each light request came, and how long it took.
    pub(super) latencies_us: Vec<Vec<(f64, f64)>>,
    /// By connection.
    pub(super) served: Vec<usize>,
    pub(super) moves: usize,
    /// For each request: how many started while it waited.
    pub(super) overtaken: Vec<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    Comes(usize),
    OpenLoop,
    WaitEnds(usize),
    /// Another thread of this worker leads.
    Promoted(usize),
    /// A request of this worker may have waited for long enough to be moved.
    Due(usize),
    Asked {
        giver: usize,
        asker: usize,
    },
    Moved {
        place: usize,
        key_us: u64,
        taker: usize,
    },
}

/// When an event happens, and its number.
#[derive(Debug, PartialEq)]
struct Timed(f64, u64, Event);

impl Eq for Timed {}

impl Ord for Timed {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0).then(self.1.cmp(&other.1))
    }
}

impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Debug)]
pub(super) struct Model {
    pub(super) setup: Setup,
    pub(super) now_us: f64,
    pub(super) connections: Vec<Connection>,
    pub(super) workers: Vec<Worker>,
    pub(super) views: Vec<WorkerView>,
    /// The queue of the ideal.
    pub(super) central: VecDeque<usize>,
    pub(super) started: usize,
    pub(super) outcome: Outcome,
    events: BinaryHeap<Reverse<Timed>>,
    event: u64,
    random: Random,
}

impl Model {
    pub(super) fn run(setup: Setup) -> Outcome {
        let mut model = Self::new(setup);
        model.begin();
        while model.step() {}
        model.outcome
    }

    fn new(setup: Setup) -> Self {
        // Each connection has a generator of its own, so that its requests are the same under every policy.
        let mut random = Random::new(setup.seed);
        let habits = setup.habits.iter().zip(0..);
        let connections: Vec<_> = habits
            .map(|(habit, place)| {
                Connection::new(*habit, Random::new(random.number()), place % setup.workers)
            })
            .collect();
        let outcome = Outcome {
            latencies_us: vec![Vec::new(); connections.len()],
            served: vec![0; connections.len()],
            ..Outcome::default()
        };
        Self {
            now_us: 0.0,
            workers: (0..setup.workers).map(|_| Worker::new(setup.threads)).collect(),
            connections,
            views: Vec::new(),
            central: VecDeque::new(),
            started: 0,
            outcome,
            events: BinaryHeap::new(),
            event: 0,
            random,
            setup,
        }
    }

    fn begin(&mut self) {
        for place in 0..self.connections.len() {
            let (first_us, requests) = match self.connections[place].habit {
                Habit::Greedy(requests) => (10.0 * THINK_US * unit(&mut self.random), requests),
                Habit::Every(period_us) => (period_us * unit(&mut self.random), 1),
                Habit::Open => continue,
            };
            (0..requests).for_each(|_| self.after(first_us, Event::Comes(place)));
        }
        if self.setup.open_per_second.is_some() {
            self.after(0.0, Event::OpenLoop);
        }
    }

    pub(super) fn after(&mut self, delay_us: f64, event: Event) {
        self.event += 1;
        self.events.push(Reverse(Timed(self.now_us + delay_us, self.event, event)));
    }

    /// Goes on to what happens next; false at the end.
    fn step(&mut self) -> bool {
        let holders = self.workers.iter().zip(0..);
        let holders = holders.filter_map(|(worker, at)| Some((worker.lock?.1, at)));
        let rate = (self.setup.processors as f64 / holders.clone().count() as f64).min(1.0);
        let first = holders.min_by(|one, other| one.0.total_cmp(&other.0));
        let phase_ends_us =
            first.map_or(f64::INFINITY, |(left_us, _)| self.now_us + left_us / rate);
        let event_us = self.events.peek().map_or(f64::INFINITY, |Reverse(event)| event.0);
        let next_us = phase_ends_us.min(event_us);
        if next_us >= self.setup.seconds * 1e6 {
            return false;
        }
        let computed_us = (next_us - self.now_us) * rate;
        for (_, left_us) in self.workers.iter_mut().filter_map(|worker| worker.lock.as_mut()) {
            *left_us -= computed_us;
        }
        self.now_us = next_us;
        match first {
            Some((_, worker)) if phase_ends_us <= event_us => self.compute_ends(worker),
            _ => self.happen(),
        }
        true
    }

    fn happen(&mut self) {
        let Some(Reverse(Timed(_, _, event))) = self.events.pop() else { return };
        match event {
            Event::Comes(place) => self.comes(place),
            Event::OpenLoop => {
                let place = self.random.below(self.connections.len());
                self.comes(place);
                let mean_us = 1e6 / self.setup.open_per_second.unwrap();
                let pause_us = pause_us(&mut self.random, mean_us);
                self.after(pause_us, Event::OpenLoop);
            }
            Event::WaitEnds(place) => self.advance(place),
            Event::Promoted(worker) => {
                let worker_state = &mut self.workers[worker];
                let is_vacant = worker_state.free == 0;
                worker_state.leader = if is_vacant { Leader::Vacant } else { Leader::Free };
                self.look(worker);
            }
            Event::Due(giver) => self.give(giver),
            Event::Asked { giver, asker } => self.answer_asker(giver, asker),
            Event::Moved { place, key_us, taker } => self.receive(place, key_us, taker),
        }
    }

    fn comes(&mut self, place: usize) {
        let connection = &mut self.connections[place];
        let (phases, is_heavy) = self.setup.shape.request(&mut connection.random);
        connection.pending.push_back(Request { came_us: self.now_us, phases, is_heavy, phase: 0 });
        if connection.pending.len() == 1 && connection.in_service.is_none() {
            self.enqueue(place);
            self.look(self.connections[place].worker);
        }
    }

    /// A thread of `worker` begins with the next request of a connection.
    pub(super) fn start(&mut self, place: usize, worker: usize) {
        let connection = &mut self.connections[place];
        connection.worker = worker;
        connection.in_service = connection.pending.pop_front();
        self.outcome.overtaken.push(self.started - connection.started_before);
        self.started += 1;
        self.workers[worker].free -= 1;
    }

    /// Goes on with a request whose thread does not hold the lock.
    pub(super) fn advance(&mut self, place: usize) {
        let worker = self.connections[place].worker;
        match self.connections[place].next_phase() {
            None => {
                self.finish(place);
                self.look(worker);
            }
            Some(Phase::Compute(_)) => {
                self.workers[worker].standing.push_back(Standing::Request(place));
                self.grant(worker);
            }
            Some(Phase::Wait(length_us)) => self.wait(place, length_us),
        }
    }

    /// The holder of a lock has computed as long as this phase lasts.
    fn compute_ends(&mut self, worker: usize) {
        let Some((place, _)) = self.workers[worker].lock.take() else { return };
        match self.connections[place].next_phase() {
            None => {
                self.finish(place);
                self.go_on(worker);
            }
            Some(Phase::Wait(length_us)) => self.wait(place, length_us),
            Some(Phase::Compute(_)) => unreachable!("two phases in a row compute"),
        }
        self.grant(worker);
        if self.connections[place].in_service.is_none() {
            self.look(worker);
        }
    }

    pub(super) fn wait(&mut self, place: usize, length_us: f64) {
        self.after(length_us, Event::WaitEnds(place));
        let worker = self.connections[place].worker;
        if self.workers[worker].leader == Leader::InService(place) {
            self.workers[worker].leader = Leader::Promoting;
            self.after(PROMOTE_US, Event::Promoted(worker));
        }
    }

    fn finish(&mut self, place: usize) {
        let connection = &mut self.connections[place];
        let Some(request) = connection.in_service.take() else { return };
        connection.served_us = Some(self.now_us as u64);
        let worker = &mut self.workers[connection.worker];
        worker.free += 1;
        if [Leader::Vacant, Leader::InService(place)].contains(&worker.leader) {
            worker.leader = Leader::Free;
        }
        if !request.is_heavy {
            let latency_us = self.now_us - request.came_us;
            self.outcome.latencies_us[place].push((request.came_us, latency_us));
        }
        self.outcome.served[place] += 1;
        match connection.habit {
            Habit::Greedy(_) => self.after(THINK_US, Event::Comes(place)),
            Habit::Every(period_us) => {
                let next_us = request.came_us + period_us * (0.9 + 0.2 * unit(&mut self.random));
                self.after((next_us - self.now_us).max(0.0), Event::Comes(place));
            }
            Habit::Open => {}
        }
        if !self.connections[place].pending.is_empty() {
            self.enqueue(place);
        }
    }
}
