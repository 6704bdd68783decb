//! Many connections with little traffic: idle ones cost memory, slow ones must not delay others.

use std::thread::sleep;
use std::time::Duration;

use super::arena::{Arena, Scenario, median_of};
use super::load::{Run, begin};
use super::server::App;
use crate::context::BenchContext;
use crate::process::memory_mb;
use crate::table::{Table, at_most};

/// The number of idle connections.
const IDLE: u64 = 10_000;
/// The time in seconds for all connections before memory is read.
const SETTLE_SECONDS: u64 = 8;

/// Measures the memory of 10,000 keep-alive connections that have had one response each.
pub(crate) fn idle(context: &BenchContext) -> Result<String, String> {
    let arena = Arena::new(context)?;
    let scenario = Scenario::rack("/", &[]);
    let columns = ["server", "MB without", "MB with", "MB more", "answered"];
    let title = "10,000 idle keep-alive connections after one response each, `-w 2 -t 2`";
    let mut table = Table::new(title, &columns);
    let mut ours = None;
    for contender in arena.servers(App::Rack) {
        let Some(running) = arena.start(contender, scenario)? else { continue };
        let without = memory_mb(&running.processes());
        let (mix, seconds) = (format!("idle={IDLE}"), (SETTLE_SECONDS + 2).to_string());
        let options = ["--mix", mix.as_str(), "-d", seconds.as_str()];
        let loading = begin(&context.root, &running, &[scenario.path], &options)?;
        sleep(Duration::from_secs(SETTLE_SECONDS));
        let with = memory_mb(&running.processes());
        let answered = loading.end()?["total"]["requests"].as_u64().unwrap_or(0);
        let cells = [without, with, with - without].map(|megabytes| format!("{megabytes:.0}"));
        table.row(contender.name, &[cells.as_slice(), &[answered.to_string()]].concat());
        if contender.name == "thruway" && answered == IDLE {
            ours = Some(with - without);
        }
    }
    table.target("MB more ≤ 40, with all answered", at_most(ours, 40.0));
    Ok(table.text())
}

/// Measures the latency of a polite client, alone and beside 100 clients that send a byte every 100
/// ms.
pub(crate) fn trickle(context: &BenchContext) -> Result<String, String> {
    let arena = Arena::new(context)?;
    let seconds = arena.seconds(2.0);
    let alone = ["--mix", "polite=1", "-d", &seconds];
    let beside = ["--mix", "polite=1,trickle=100", "-d", &seconds];
    let alone = arena.rounds(Scenario::rack("/", &alone))?;
    let beside = arena.rounds(Scenario::rack("/", &beside))?;
    let columns = ["server", "alone p99 ms", "beside 100 p99 ms", "ms more", "polite requests"];
    let title = "A polite client beside 100 that send a byte every 100 ms, `-w 2 -t 2`";
    let mut table = Table::new(title, &columns);
    for (alone, beside) in alone.iter().zip(&beside) {
        let (before, after) = (alone.median(p99_ms), beside.median(p99_ms));
        let answered = beside.median(|run| run.class("polite", "/requests"));
        let cells = [before, after, after - before].map(|time| format!("{time:.2}"));
        table.row(alone.name, &[cells.as_slice(), &[format!("{answered:.0}")]].concat());
    }
    let more = median_of(&beside, "thruway", p99_ms)
        .zip(median_of(&alone, "thruway", p99_ms))
        .map(|(after, before)| after - before);
    table.target("less than 2 ms more", at_most(more, 2.0));
    Ok(table.text())
}

fn p99_ms(run: &Run) -> f64 {
    run.class("polite", "/latency/p99_ns") / 1e6
}
