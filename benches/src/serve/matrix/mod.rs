//! `serve-matrix`: workers, threads and clients × the work of requests × the loads.
//!
//! Reading order: [`choice`] (the measured parts), [`plan`] (the options of the load generator), this file (the runs),
//! [`sample`] (the arithmetic), [`report`] (tables).

pub(crate) mod choice;
mod plan;
mod report;
mod sample;

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::arena::{Arena, Scenario};
use super::contender::Contender;
use super::load::Run;
use super::running::RunningServer;
use super::server::App;
use crate::context::BenchContext;
use crate::process::cpu_seconds;
use choice::{Cell, Load, Shape};
use report::{Results, Row};
use sample::Sample;

/// How long a server may take to finish its work after its clients have gone.
const SETTLE_MAX: Duration = Duration::from_secs(5);
/// The interval is longer than the kernel's ticks, in which processor time is counted, and than any wait of a shape.
const SETTLE_POLL: Duration = Duration::from_millis(60);

/// A running server, and its place among the contenders.
type StartedServer = (usize, RunningServer);

/// The matrix as far as it has been measured.
struct Matrix<'a> {
    arena: &'a Arena<'a>,
    results: Results,
    /// The best closed throughput of each cell and shape: all rounds derive shares from the same rate.
    capacities: BTreeMap<(Cell, Shape), f64>,
}

pub(crate) fn run(context: &BenchContext) -> Result<String, String> {
    let arena = Arena::new(context)?;
    let contenders: Vec<_> = arena.servers(App::Shapes).collect();
    announce(context, contenders.len());
    let mut matrix =
        Matrix { arena: &arena, results: Results::default(), capacities: BTreeMap::new() };
    for _ in 0..context.rounds {
        for cell in context.matrix.cells() {
            matrix.cell(cell, &contenders)?;
        }
    }
    Ok(report::text(&matrix.results, &contenders, context.rounds))
}

/// Prints the expected duration: the whole matrix takes hours.
fn announce(context: &BenchContext, contenders: usize) {
    let choice = &context.matrix;
    let loads: usize = choice.shapes().iter().map(|shape| choice.loads(*shape).len()).sum();
    let runs = choice.cells().len() * loads * contenders * context.rounds;
    let minutes = (runs as f64 * context.seconds / 60.0).ceil();
    println!(
        "serve-matrix: {runs} runs of {contenders} servers, {minutes} minutes and their starts"
    );
}

impl Matrix<'_> {
    /// Measures all shapes and loads of a cell on all servers in turn. Servers start anew in each round, which
    /// distributes connections over workers anew.
    fn cell(&mut self, cell: Cell, contenders: &[&Contender]) -> Result<(), String> {
        let shapes = self.arena.context.matrix.shapes();
        for app in [App::Shapes, App::Rails] {
            let of_app = |shape: &Shape| (*shape == Shape::Rails) == (app == App::Rails);
            let shapes: Vec<_> = shapes.iter().copied().filter(of_app).collect();
            if shapes.is_empty() {
                continue;
            }
            let servers = self.start(cell, app, contenders)?;
            for shape in shapes {
                self.shape(cell, shape, &servers)?;
            }
        }
        Ok(())
    }

    fn start(
        &self,
        cell: Cell,
        app: App,
        contenders: &[&Contender],
    ) -> Result<Vec<StartedServer>, String> {
        let path = if app == App::Rails { "/stops/3" } else { "/page" };
        let Cell { workers, threads, .. } = cell;
        let scenario = Scenario { app, workers, threads, path, options: &[] };
        let mut started = Vec::new();
        for (place, contender) in contenders.iter().enumerate() {
            let running = self.arena.start(contender, scenario)?;
            started.extend(running.map(|running| (place, running)));
        }
        Ok(started)
    }

    fn shape(&mut self, cell: Cell, shape: Shape, servers: &[StartedServer]) -> Result<(), String> {
        for load in self.arena.context.matrix.loads(shape) {
            let known = self.capacities.get(&(cell, shape)).copied();
            if load.share().is_some() && known.is_none() {
                // The closed load was not chosen, but shares depend on it.
                self.measure(cell, shape, Load::Closed, 0.0, servers)?;
            }
            let capacity = self.capacities.get(&(cell, shape)).copied().unwrap_or(0.0);
            let rate = load.share().unwrap_or(0.0) * capacity;
            for (place, run) in self.measure(cell, shape, load, rate, servers)? {
                for (part, sample) in samples(shape, load, &run) {
                    self.results.push(Row { cell, shape, load, part }, place, sample);
                }
            }
        }
        Ok(())
    }

    /// Measures one run of each server.
    fn measure(
        &mut self,
        cell: Cell,
        shape: Shape,
        load: Load,
        rate: f64,
        servers: &[StartedServer],
    ) -> Result<Vec<(usize, Run)>, String> {
        let context = self.arena.context;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let processors = u32::try_from(processors).unwrap_or(u32::MAX);
        let options = plan::options(cell, shape, load, rate, context.seconds, processors);
        let options: Vec<_> = options.iter().map(String::as_str).collect();
        let mut runs = Vec::new();
        for (place, running) in servers {
            let run = super::load::load(&context.root, running, shape.paths(), &options)?;
            settle(running);
            runs.push((*place, run));
        }
        if load == Load::Closed {
            let speeds = runs.iter().map(|(_, run)| run.requests_per_second());
            let best = speeds.fold(0.0, f64::max);
            self.capacities.entry((cell, shape)).or_insert(best);
        }
        Ok(runs)
    }
}

/// Waits until a server has finished its last work, so that the server does not disturb the next one.
fn settle(running: &RunningServer) {
    let processes = running.processes();
    let deadline = Instant::now() + SETTLE_MAX;
    let mut before = f64::NEG_INFINITY;
    while Instant::now() < deadline {
        let used = cpu_seconds(&processes);
        if used <= before {
            return;
        }
        before = used;
        sleep(SETTLE_POLL);
    }
}

/// Returns the samples of a run; for `tail`, one for each kind of request.
fn samples(shape: Shape, load: Load, run: &Run) -> Vec<(&'static str, Sample)> {
    let sample = |number: &dyn Fn(&str) -> f64| Sample {
        requests_per_second: number("/requests_per_second"),
        p50_ms: latency_ms(number, "p50", 0.5),
        p99_ms: latency_ms(number, "p99", 0.99),
        p999_ms: latency_ms(number, "p999", 0.999),
        jain: (load == Load::Closed).then(|| run.jain()),
        lost: run.lost(),
        cpu_us: run.cpu_us(),
    };
    if shape != Shape::Tail {
        return vec![("", sample(&|pointer| run.total(pointer)))];
    }
    let [light, heavy] = [0, 1].map(|place| {
        let path = shape.paths()[place];
        sample(&|pointer| match load {
            Load::Closed => run.url(path, pointer),
            _ => run.class_of(path, pointer),
        })
    });
    // The clients' shares cover both kinds.
    vec![(" short", light), (" long", Sample { jain: None, ..heavy })]
}

/// A quantile of the latency. Requests without a response count too, or a server that leaves most of its requests
/// waiting would look fast. If they are more than the quantile leaves out, the age of the oldest request is the result.
fn latency_ms(number: &dyn Fn(&str) -> f64, quantile: &str, share: f64) -> f64 {
    let answered = number("/requests");
    if answered == 0.0 {
        return f64::INFINITY;
    }
    let pending = number("/fairness/pending");
    let latency_ns = number(&format!("/latency/{quantile}_ns"));
    if pending > (1.0 - share) * (answered + pending) {
        return latency_ns.max(number("/fairness/oldest_pending_ns")) / 1e6;
    }
    latency_ns / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latency(pending: f64, share: f64) -> f64 {
        let number = |pointer: &str| match pointer {
            "/requests" => 99.0,
            "/fairness/pending" => pending,
            "/fairness/oldest_pending_ns" => 7e6,
            _ => 2e6,
        };
        latency_ms(&number, "p99", share)
    }

    #[test]
    fn requests_that_wait_for_ever_count() {
        assert_eq!(latency(0.0, 0.99), 2.0);
        assert_eq!(latency(1.0, 0.99), 2.0);
        assert_eq!(latency(3.0, 0.99), 7.0);
        assert_eq!(latency(3.0, 0.9), 2.0);
        assert_eq!(latency_ms(&|_| 0.0, "p99", 0.99), f64::INFINITY);
    }
}
