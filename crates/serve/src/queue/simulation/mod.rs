//! The queue in a simulated server, compared with a single queue in the order of arrival for all threads.
//!
//! `THRUWAY_CASES` is the number of seeds (`cargo x prove queue` runs more), `THRUWAY_SEED` the first.

mod cluster;
mod model;
mod timeline;
mod worker;
mod workload;

use std::fmt::Write as _;

use cluster::{Outcome, Setup};
use model::Model;
use thruway_testing::setting;
use workload::{Habit, Shape};

use super::policy::MOVE_AFTER_US;

/// The numbers of workers, of threads in each, and of clients.
const CELLS: [(usize, usize, usize); 5] =
    [(1, 4, 10), (2, 2, 10), (2, 3, 20), (2, 5, 32), (4, 3, 40)];

/// Other numbers that are close to those.
const NEIGHBOURS: [(usize, usize, usize); 5] =
    [(2, 1, 10), (2, 2, 7), (3, 3, 16), (4, 2, 20), (8, 2, 40)];

/// A closed loop, and open loops at parts of the ideal's throughput in a closed loop.
const LOADS: [Option<f64>; 3] = [None, Some(0.6), Some(0.8)];

/// The interval between two requests of a polite client, in microseconds.
const POLITE_US: f64 = 100e3;

/// The compared figures of a cell: the worst fairness over all seeds, and the means of the others.
#[derive(Debug, Default)]
struct Figures {
    jain: f64,
    p99_us: f64,
    per_second: f64,
    /// Moves per worker and second.
    moves_per_worker: f64,
    /// The highest number of requests that started while one waited, as a multiple of the number of clients.
    overtaken: f64,
}

fn seeds() -> std::ops::Range<u64> {
    let first = setting("THRUWAY_SEED", 1);
    first..first + setting("THRUWAY_CASES", 2)
}

/// A server with two processors and `clients` clients with the habit.
fn setup(cell: (usize, usize, usize), shape: Shape, habit: Habit) -> Setup {
    Setup {
        workers: cell.0,
        threads: cell.1,
        in_fibers: false,
        processors: 2,
        shape,
        habits: vec![habit; cell.2],
        open_per_second: None,
        is_central: false,
        // For the model, a short request is as much work as a long one.
        seconds: if shape == Shape::Short { 0.02 } else { 4.0 },
        seed: 0,
    }
}

/// Jain's index: one if all shares are equal, and less the more unequal they are.
fn jain(served: &[usize]) -> f64 {
    let sum: usize = served.iter().sum();
    let squares: usize = served.iter().map(|count| count * count).sum();
    (sum * sum) as f64 / (served.len() * squares) as f64
}

fn p99(latencies: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<_> = latencies.collect();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() * 99 / 100]
}

fn figures(setup: &Setup) -> Figures {
    let mut figures = Figures { jain: 1.0, ..Figures::default() };
    let share = 1.0 / seeds().count() as f64;
    for seed in seeds() {
        let outcome = Model::run(Setup { seed, ..setup.clone() });
        let served = outcome.served.iter().sum::<usize>() as f64;
        let latencies = outcome.latencies_us.iter().flatten();
        let overtaken = outcome.overtaken.iter().max().copied().unwrap_or(0);
        figures.jain = figures.jain.min(jain(&outcome.served));
        figures.p99_us += share * p99(latencies.map(|(_, latency_us)| *latency_us));
        figures.per_second += share * served / setup.seconds;
        let worker_seconds = setup.seconds * setup.workers as f64;
        figures.moves_per_worker += share * outcome.moves as f64 / worker_seconds;
        let clients = setup.habits.len() as f64;
        figures.overtaken = figures.overtaken.max(overtaken as f64 / clients);
    }
    figures
}

/// The figures of the ideal and of our queue under a load. `per_second` is the ideal's throughput in a closed loop.
fn compare(closed: &Setup, load: Option<f64>, per_second: f64) -> [Figures; 2] {
    let habits = load.map_or(closed.habits.clone(), |_| vec![Habit::Open; closed.habits.len()]);
    let open_per_second = load.map(|load| load * per_second);
    [true, false].map(|is_central| {
        let setup = Setup { habits: habits.clone(), open_per_second, is_central, ..closed.clone() };
        figures(&setup)
    })
}

/// The figures of a cell that are worse than they have to be.
fn faults(shape: Shape, load: Option<f64>, ideal: &Figures, ours: &Figures) -> Vec<&'static str> {
    let is_closed = load.is_none();
    let worst = if (shape, load) == (Shape::Page, Some(0.8)) { 1.6 } else { 1.25 };
    let overtaken_max = if shape == Shape::Tail { 2.0 } else { 1.2 };
    // A request may wait that long in one worker while another is idle.
    let p99_max_us = (worst * ideal.p99_us).max(ideal.p99_us + MOVE_AFTER_US as f64);
    let checks = [
        (is_closed && ours.jain < 0.98, "Jain"),
        (ours.p99_us > p99_max_us, "p99"),
        (ours.per_second < 0.93 * ideal.per_second, "requests a second"),
        (ours.moves_per_worker > 75.0, "moves"),
        (is_closed && ours.overtaken > overtaken_max, "overtaken"),
    ];
    checks.into_iter().filter(|(is_fault, _)| *is_fault).map(|(_, fault)| fault).collect()
}

#[test]
fn every_cell_is_as_if_there_were_one_queue() {
    let mut table = String::new();
    let mut bad = Vec::new();
    for (cell, shape) in CELLS.iter().flat_map(|cell| Shape::ALL.map(|shape| (*cell, shape))) {
        let closed = setup(cell, shape, Habit::Greedy(1));
        let capacity = figures(&Setup { is_central: true, ..closed.clone() }).per_second;
        for load in LOADS {
            let [ideal, ours] = compare(&closed, load, capacity);
            let found = faults(shape, load, &ideal, &ours);
            if !found.is_empty() {
                bad.push(format!(
                    "{cell:?} {shape:?} {load:?}: {found:?} {ours:?}, ideal {ideal:?}"
                ));
            }
            let name = load.map_or("closed".into(), |load| format!("{load}"));
            writeln!(
                table,
                "| {cell:?} | {shape:?} | {name} | {:.3} | {:.3} | {:.2} | {:.2} | {:.2} | {:.3} | {:.0} | {:.2} |",
                ideal.jain,
                ours.jain,
                ideal.p99_us / 1e3,
                ours.p99_us / 1e3,
                ours.p99_us / ideal.p99_us,
                ours.per_second / ideal.per_second,
                ours.moves_per_worker,
                ours.overtaken,
            )
            .unwrap();
        }
    }
    println!("{table}");
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn neighbours_of_the_cells_are_served_alike() {
    for (cell, shape) in
        NEIGHBOURS.iter().flat_map(|cell| [Shape::Page, Shape::Tail].map(|shape| (*cell, shape)))
    {
        let closed = setup(cell, shape, Habit::Greedy(1));
        let [ideal, ours] = compare(&closed, None, 0.0);
        let mut found = faults(shape, None, &ideal, &ours);
        // With fewer clients per worker, each client is a larger part of a round.
        found.retain(|fault| *fault != "overtaken" || ours.overtaken > 2.5);
        assert!(found.is_empty(), "{cell:?} {shape:?}: {found:?} {ours:?}, ideal {ideal:?}");
    }
}

/// Runs the `unlike` habits beside greedy clients.
fn run_beside_greedy(
    cell: (usize, usize, usize),
    unlike: &[Habit],
    is_central: bool,
    seed: u64,
) -> Outcome {
    let mut setup = setup(cell, Shape::Cpu5, Habit::Greedy(1));
    setup.habits[..unlike.len()].copy_from_slice(unlike);
    Model::run(Setup { is_central, seed, ..setup })
}

#[test]
fn a_polite_client_waits_for_less_than_half_a_round_of_greedy_ones() {
    for cell in [(2, 2, 10), (1, 4, 10), (2, 3, 20)] {
        let [fifo, ours] = [true, false].map(|is_central| {
            let polite = [Habit::Every(POLITE_US)];
            let runs = (0..10).map(|seed| run_beside_greedy(cell, &polite, is_central, seed));
            let latencies: Vec<_> = runs.flat_map(|run| run.latencies_us[0].clone()).collect();
            // The length of a round has to be learnt first.
            p99(latencies.into_iter().filter(|(came_us, _)| *came_us > 5e5).map(|one| one.1))
        });
        println!(
            "{cell:?}: p99 {:.1} ms, in the order of arrival {:.1} ms",
            ours / 1e3,
            fifo / 1e3
        );
        assert!(ours < 0.45 * fifo, "{cell:?}: {ours} of {fifo} µs");
    }
}

#[test]
fn polite_clients_delay_greedy_ones_by_a_bounded_part_of_a_round() {
    let polite = [Habit::Every(POLITE_US); 8];
    for cell in [(2, 2, 16), (1, 4, 16), (2, 3, 24)] {
        for seed in seeds() {
            let ours = run_beside_greedy(cell, &polite, false, seed);
            let overtaken = ours.overtaken.iter().max().copied().unwrap_or(0);
            assert!(overtaken as f64 <= 1.5 * cell.2 as f64, "{cell:?}: {overtaken}");
            let greedy = &ours.served[polite.len()..];
            assert!(jain(greedy) > 0.98, "{cell:?}: {greedy:?}");
        }
    }
}

#[test]
fn pipelined_requests_count_as_one_client() {
    let pipelined = [Habit::Greedy(8); 2];
    for cell in [(2, 2, 10), (1, 4, 10), (2, 3, 20)] {
        for seed in seeds() {
            let ours = run_beside_greedy(cell, &pipelined, false, seed);
            assert!(jain(&ours.served) > 0.98, "{cell:?}: {:?}", ours.served);
        }
    }
}

/// The numbers of workers, of requests that may run in the fibers of each, and of clients.
const FIBERS: [(usize, usize, usize); 4] =
    [(2, 1000, 10), (2, 1000, 20), (4, 1000, 40), (8, 1000, 50)];

#[test]
fn clients_of_fibers_stay_spread_evenly() {
    for (cell, shape) in
        FIBERS.iter().flat_map(|cell| [Shape::Page, Shape::Tail].map(|shape| (*cell, shape)))
    {
        let closed = Setup { in_fibers: true, ..setup(cell, shape, Habit::Greedy(1)) };
        let [ideal, ours] = compare(&closed, None, 0.0);
        let p99_max_us = if shape == Shape::Page { 1.1 } else { 1.5 } * ideal.p99_us;
        let is_good = ours.p99_us < p99_max_us
            && ours.per_second > 0.93 * ideal.per_second
            && ours.overtaken < 2.0
            && ours.moves_per_worker < 20.0;
        assert!(is_good, "{cell:?} {shape:?}: {ours:?}, ideal {ideal:?}");
    }
}
