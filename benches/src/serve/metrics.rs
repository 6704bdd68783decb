//! The cost of metrics: the same server with `--metrics` and without.

use super::arena::{Arena, Scenario, ServerRuns};
use super::contender::Contender;
use super::load::Run;
use super::server::{Program, Server};
use crate::context::BenchContext;
use crate::table::{Table, at_least};

static WITHOUT: Server = Server::for_rack(
    "thruway",
    Program::Ours,
    "serve {app} -b tcp://127.0.0.1:{port} -w {workers} -t {threads} -e production",
    "",
);

static WITH: Server = Server::for_rack(
    "thruway, `--metrics`",
    Program::Ours,
    "serve {app} -b tcp://127.0.0.1:{port} -w {workers} -t {threads} -e production \
     --metrics unix://{run}/metrics",
    "",
);

/// Measures the short application with one worker, whose processor is the limit.
pub(crate) fn run(context: &BenchContext) -> Result<String, String> {
    let arena = Arena::new(context)?;
    let seconds = arena.seconds(1.0);
    let options = ["-c", "10", "-d", &seconds];
    let scenario = Scenario { workers: 1, ..Scenario::rack("/", &options) };
    let columns = ["server", "requests/s", "±", "CPU µs a request", "÷ without"];
    let mut table = Table::new("Short Rack app, 10 connections, `-w 1 -t 2`", &columns);
    let mut worst: Option<f64> = None;
    for pair in Contender::everywhere(context, [&WITHOUT, &WITH]) {
        let [without, with] = measure(&arena, scenario, &pair)?;
        let share =
            with.median(Run::requests_per_second) / without.median(Run::requests_per_second);
        table.row(without.name, &cells(&without, 1.0));
        table.row(with.name, &cells(&with, share));
        worst = Some(worst.map_or(share, |worst| worst.min(share)));
    }
    table.target("requests/s ≥ .98 × without", at_least(worst, 0.98));
    Ok(table.text())
}

fn measure(
    arena: &Arena<'_>,
    scenario: Scenario<'_>,
    pair: &[Contender; 2],
) -> Result<[ServerRuns; 2], String> {
    let mut all = pair.each_ref().map(|one| ServerRuns { name: one.name, runs: Vec::new() });
    for _ in 0..arena.context.rounds {
        for (contender, measured) in pair.iter().zip(&mut all) {
            let running = arena.start(contender, scenario)?;
            let running = running.ok_or_else(|| format!("{} does not start", contender.name))?;
            measured.runs.push(arena.load(&running, scenario)?);
        }
    }
    Ok(all)
}

fn cells(measured: &ServerRuns, share: f64) -> [String; 4] {
    let speed = measured.series(Run::requests_per_second);
    [
        format!("{:.0}", speed.median()),
        format!("{:.0} %", speed.spread() * 100.0),
        format!("{:.1}", measured.median(Run::cpu_us)),
        format!("{share:.3}"),
    ]
}
