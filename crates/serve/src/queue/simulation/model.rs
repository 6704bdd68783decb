//! A model of a server: workers with threads and an interpreter lock each, on shared processors.
//!
//! Time is in microseconds. Workers whose lock is held share the processors evenly. Threads get the lock in the order
//! of their requests. Ruby's quantum of 100 ms is left out, because no phase computes that long.

use super::cluster::{Cluster, Outcome, Setup, THINK_US};
use super::timeline::Event;
use super::workload::{Habit, pause_us, unit};

#[derive(Debug)]
pub(super) struct Model {
    cluster: Cluster,
}

impl Model {
    pub(super) fn run(setup: Setup) -> Outcome {
        let mut model = Self { cluster: Cluster::new(setup) };
        model.begin();
        while model.step() {}
        model.cluster.outcome
    }

    fn begin(&mut self) {
        let cluster = &mut self.cluster;
        for place in 0..cluster.connections.len() {
            let (first_us, requests) = match cluster.connections[place].habit {
                Habit::Greedy(requests) => (10.0 * THINK_US * unit(&mut cluster.random), requests),
                Habit::Every(period_us) => (period_us * unit(&mut cluster.random), 1),
                Habit::Open => continue,
            };
            (0..requests).for_each(|_| cluster.timeline.after(first_us, Event::Comes(place)));
        }
        if cluster.setup.open_per_second.is_some() {
            cluster.timeline.after(0.0, Event::OpenLoop);
        }
    }

    /// Advances to the next event; false at the end.
    fn step(&mut self) -> bool {
        let cluster = &mut self.cluster;
        let now_us = cluster.timeline.now_us;
        let holders = cluster.workers.iter().zip(0..);
        let holders = holders.filter_map(|(worker, at)| Some((worker.lock?.1, at)));
        let rate = (cluster.setup.processors as f64 / holders.clone().count() as f64).min(1.0);
        let first = holders.min_by(|one, other| one.0.total_cmp(&other.0));
        let phase_ends_us = first.map_or(f64::INFINITY, |(left_us, _)| now_us + left_us / rate);
        let event_us = cluster.timeline.next_us();
        let next_us = phase_ends_us.min(event_us);
        if next_us >= cluster.setup.seconds * 1e6 {
            return false;
        }
        let computed_us = (next_us - now_us) * rate;
        for (_, left_us) in cluster.workers.iter_mut().filter_map(|worker| worker.lock.as_mut()) {
            *left_us -= computed_us;
        }
        cluster.timeline.now_us = next_us;
        match first {
            Some((_, worker)) if phase_ends_us <= event_us => cluster.compute_ends(worker),
            _ => self.happen(),
        }
        true
    }

    fn happen(&mut self) {
        let cluster = &mut self.cluster;
        let Some(event) = cluster.timeline.pop() else { return };
        match event {
            Event::Comes(place) => cluster.comes(place),
            Event::OpenLoop => {
                let place = cluster.random.below(cluster.connections.len());
                cluster.comes(place);
                let mean_us = 1e6 / cluster.setup.open_per_second.unwrap();
                let pause_us = pause_us(&mut cluster.random, mean_us);
                cluster.timeline.after(pause_us, Event::OpenLoop);
            }
            Event::WaitEnds(place) => cluster.advance(place),
            Event::Promoted(worker) => cluster.promote(worker),
            Event::Due(giver) => cluster.give(giver),
            Event::Asked { giver, asker } => cluster.handle_ask(giver, asker),
            Event::Moved { place, key_us, taker } => cluster.receive(place, key_us, taker),
        }
    }
}
