//! The workers of the model: the leading thread, the thread that holds the lock, and the moves between workers.
//!
//! In each worker one thread leads. The leader takes the oldest request once it holds the lock. While it waits in the
//! application, another free thread leads. A thread that has finished a request holds the lock, and takes the next
//! request at once. If others wait for the lock, the thread does so only every second time.

use std::cmp::Reverse;
use std::collections::VecDeque;

use thruway_testing::Random;

use super::timeline::{Event, Timeline};
use super::worker::{Connection, Leader, Request, Runnable, Worker};
use super::workload::{Habit, Phase, Shape, unit};
use crate::queue::policy::{self, MOVE_AFTER_US, WorkerView};

/// The cost of a move for each of the two workers.
const MOVE_COST_US: f64 = 50.0;

/// The time of a message from one worker to another.
const MESSAGE_US: f64 = 100.0;

/// The additional time if the leader of the asked worker is in the application or waits for the lock.
const STANDBY_US: f64 = 300.0;

/// The time from a response to the next request of a greedy client.
pub(super) const THINK_US: f64 = 100.0;

/// The time from the leader's wait to the lead of another thread.
const PROMOTE_US: f64 = 50.0;

#[derive(Debug, Clone)]
pub(super) struct Setup {
    pub(super) workers: usize,
    /// The threads of each worker, or the requests that may run in its fibers.
    pub(super) threads: usize,
    pub(super) in_fibers: bool,
    pub(super) processors: usize,
    pub(super) shape: Shape,
    pub(super) habits: Vec<Habit>,
    /// Requests per second of an open loop, each on a random connection with [`Habit::Open`].
    pub(super) open_per_second: Option<f64>,
    /// Whether all threads have one queue in the order of arrival: the ideal.
    pub(super) is_central: bool,
    pub(super) seconds: f64,
    pub(super) seed: u64,
}

/// The requests that were served.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// By connection: when each light request arrived, and its latency.
    pub(super) latencies_us: Vec<Vec<(f64, f64)>>,
    /// By connection: the number of requests served.
    pub(super) served: Vec<usize>,
    pub(super) moves: usize,
    /// For each request: the number of others that started while it waited.
    pub(super) overtaken: Vec<usize>,
}

#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) setup: Setup,
    pub(super) timeline: Timeline,
    pub(super) connections: Vec<Connection>,
    pub(super) workers: Vec<Worker>,
    pub(super) outcome: Outcome,
    pub(super) random: Random,
    views: Vec<WorkerView>,
    /// The queue of the ideal.
    central: VecDeque<usize>,
    /// The number of requests started so far.
    started: usize,
}

impl Cluster {
    pub(super) fn new(setup: Setup) -> Self {
        // Each connection has its own generator, so that its requests are the same under every policy.
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
            timeline: Timeline::default(),
            workers: (0..setup.workers).map(|_| Worker::new(setup.threads)).collect(),
            connections,
            views: Vec::new(),
            central: VecDeque::new(),
            started: 0,
            outcome,
            random,
            setup,
        }
    }

    /// A client sends a request.
    pub(super) fn comes(&mut self, place: usize) {
        let connection = &mut self.connections[place];
        let (phases, is_heavy) = self.setup.shape.request(&mut connection.random);
        connection.pending.push_back(Request {
            came_us: self.timeline.now_us,
            phases,
            is_heavy,
            phase: 0,
        });
        if connection.pending.len() == 1 && connection.in_service.is_none() {
            self.enqueue(place);
            self.look(self.connections[place].worker);
        }
    }

    /// The thread that was to lead in a worker begins to lead.
    pub(super) fn promote(&mut self, worker: usize) {
        let state = &mut self.workers[worker];
        state.leader = if state.free == 0 { Leader::Vacant } else { Leader::Free };
        self.look(worker);
    }

    /// A thread of `worker` begins with the next request of a connection.
    fn start(&mut self, place: usize, worker: usize) {
        let connection = &mut self.connections[place];
        connection.worker = worker;
        connection.in_service = connection.pending.pop_front();
        self.outcome.overtaken.push(self.started - connection.started_before);
        self.started += 1;
        self.workers[worker].free -= 1;
    }

    /// Continues a request whose thread does not hold the lock.
    pub(super) fn advance(&mut self, place: usize) {
        let worker = self.connections[place].worker;
        match self.connections[place].next_phase() {
            None => {
                self.finish(place);
                self.look(worker);
            }
            Some(Phase::Compute(_)) => {
                self.workers[worker].standing.push_back(Runnable::Request(place));
                self.grant(worker);
            }
            Some(Phase::Wait(length_us)) => self.wait(place, length_us),
        }
    }

    /// Ends the computing phase of the holder of a lock.
    pub(super) fn compute_ends(&mut self, worker: usize) {
        let Some((place, _)) = self.workers[worker].lock.take() else { return };
        self.workers[worker].computes_since_us = None;
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

    fn wait(&mut self, place: usize, length_us: f64) {
        self.timeline.after(length_us, Event::WaitEnds(place));
        let worker = self.connections[place].worker;
        if self.workers[worker].leader == Leader::InService(place) {
            self.workers[worker].leader = Leader::Promoting;
            self.timeline.after(PROMOTE_US, Event::Promoted(worker));
        }
    }

    fn finish(&mut self, place: usize) {
        let connection = &mut self.connections[place];
        let Some(request) = connection.in_service.take() else { return };
        connection.served_us = Some(self.timeline.now_us as u64);
        let worker = &mut self.workers[connection.worker];
        worker.free += 1;
        if [Leader::Vacant, Leader::InService(place)].contains(&worker.leader) {
            worker.leader = Leader::Free;
        }
        if !request.is_heavy {
            let latency_us = self.timeline.now_us - request.came_us;
            self.outcome.latencies_us[place].push((request.came_us, latency_us));
        }
        self.outcome.served[place] += 1;
        match connection.habit {
            Habit::Greedy(_) => self.timeline.after(THINK_US, Event::Comes(place)),
            Habit::Every(period_us) => {
                let next_us = request.came_us + period_us * (0.9 + 0.2 * unit(&mut self.random));
                self.timeline.after((next_us - self.timeline.now_us).max(0.0), Event::Comes(place));
            }
            Habit::Open => {}
        }
        if !self.connections[place].pending.is_empty() {
            self.enqueue(place);
        }
    }

    /// Queues the next request of a connection.
    fn enqueue(&mut self, place: usize) {
        let connection = &mut self.connections[place];
        connection.started_before = self.started;
        if self.setup.is_central {
            return self.central.push_back(place);
        }
        let ready_us = self.timeline.now_us as u64;
        let worker = &mut self.workers[connection.worker];
        let interval_us = connection.ready_us.map_or(0, |last_us| ready_us - last_us);
        if connection.ready_us.replace(ready_us).is_some() {
            worker.round.note(interval_us);
        }
        let pause_us =
            connection.served_us.map_or(0, |served_us| ready_us.saturating_sub(served_us));
        worker.pauses.note(pause_us.max(policy::PAUSE_US_MIN));
        let is_seldom = policy::asks_seldom(interval_us, pause_us, &worker.round, &worker.pauses);
        let was_seldom = std::mem::replace(&mut connection.asks_seldom, is_seldom);
        let key_us = policy::key_us(ready_us, is_seldom && was_seldom, &worker.round);
        worker.queue.enqueue(place as u32, key_us);
        let due = Event::Due(connection.worker);
        self.timeline.after(MOVE_AFTER_US as f64 + 1.0, due);
    }

    /// The actions of a thread between two requests.
    fn look(&mut self, worker: usize) {
        if self.setup.is_central {
            return self.dispatch();
        }
        let state = &mut self.workers[worker];
        if state.leader == Leader::Free && state.queue.len() > 0 {
            state.leader = Leader::Runnable;
            state.standing.push_back(Runnable::Leader);
            self.grant(worker);
        }
        if self.workers[worker].queue.len() == 0 {
            self.ask(worker);
        }
        self.give(worker);
    }

    /// A thread has finished a request, and holds the lock.
    fn go_on(&mut self, worker: usize) {
        let state = &mut self.workers[worker];
        let passes = !state.standing.is_empty();
        let yields = passes && state.has_passed;
        state.has_passed = passes && !yields;
        if yields || self.setup.is_central {
            return;
        }
        self.ask_or_take(worker);
    }

    /// Before it takes a request, a thread checks whether a sibling has an older one, or one is on its way.
    fn ask_or_take(&mut self, worker: usize) {
        let state = &self.workers[worker];
        let asks = state.queue.len() > 0 && (state.coming > 0 || self.ask(worker));
        if asks && self.workers[worker].leader == Leader::Free {
            self.workers[worker].leader = Leader::Asking;
        } else {
            self.take(worker);
        }
    }

    /// Grants the lock to waiting threads, until one computes.
    fn grant(&mut self, worker: usize) {
        while self.workers[worker].lock.is_none() {
            match self.workers[worker].standing.pop_front() {
                None => return,
                Some(Runnable::Request(place)) => self.compute(place),
                Some(Runnable::Leader) => {
                    self.workers[worker].leader = Leader::Free;
                    self.ask_or_take(worker);
                }
            }
        }
    }

    /// The holder of the lock takes the oldest request.
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
            worker.computes_since_us = Some(self.timeline.now_us as u64);
        }
    }

    /// Asks a sibling; returns whether a request or a refusal will come.
    fn ask(&mut self, asker: usize) -> bool {
        if self.workers[asker].has_asked {
            return false;
        }
        self.view();
        let state = &self.workers[asker];
        let (next_us, round_us) = (state.queue.oldest_us(), state.round.us());
        let now_us = self.timeline.now_us as u64;
        let Some(giver) = policy::ask_from(&self.views, asker, now_us, next_us, round_us) else {
            return false;
        };
        self.workers[asker].has_asked = true;
        let is_away = matches!(self.workers[giver].leader, Leader::InService(_) | Leader::Runnable);
        let delay_us = MESSAGE_US + if is_away { STANDBY_US } else { 0.0 };
        self.timeline.after(delay_us, Event::Asked { giver, asker });
        true
    }

    pub(super) fn handle_ask(&mut self, giver: usize, asker: usize) {
        self.workers[asker].has_asked = false;
        if self.workers[asker].leader == Leader::Asking {
            self.workers[asker].leader = Leader::Free;
        }
        self.view();
        let (now_us, round_us) = (self.timeline.now_us as u64, self.workers[giver].round.us());
        if policy::grants(&self.views, giver, asker, now_us, round_us) {
            self.send(giver, asker, 0.0);
        } else {
            self.look(asker);
        }
    }

    pub(super) fn give(&mut self, giver: usize) {
        self.view();
        let (now_us, round_us) = (self.timeline.now_us as u64, self.workers[giver].round.us());
        if let Some(taker) = policy::give_to(&self.views, giver, now_us, round_us) {
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
        self.timeline.after(delay_us, Event::Moved { place: slot as usize, key_us, taker });
    }

    /// Receives a connection from another worker; the connection keeps its key.
    pub(super) fn receive(&mut self, place: usize, key_us: u64, taker: usize) {
        self.connections[place].worker = taker;
        self.connections[place].ready_us = Some(self.timeline.now_us as u64);
        self.workers[taker].coming -= 1;
        self.workers[taker].queue.enqueue(place as u32, key_us);
        if self.workers[taker].leader == Leader::Asking {
            self.workers[taker].leader = Leader::Free;
        }
        self.look(taker);
    }

    /// Updates the workers' reports.
    fn view(&mut self) {
        let connections = &self.connections;
        let Setup { threads, in_fibers, .. } = self.setup;
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
                in_fibers: in_fibers.then_some((threads - worker.free) as u32),
                slice_us: worker.computes_since_us.filter(|_| in_fibers).unwrap_or(0),
            }
        };
        self.views.clear();
        self.views.extend(self.workers.iter().map(view));
    }

    /// The ideal: the oldest request goes to the worker with a free thread in which the fewest threads compute.
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
