//! Rack applications: the short one, the sleeping one, a Rails one, and the busy one with a polite client.

use super::arena::{Arena, Scenario, ServerRuns, median_of};
use super::load::Run;
use super::server::App;
use crate::context::BenchContext;
use crate::table::{Table, at_least, at_most, ratio};

/// Measures the 121-byte response with two workers of two threads and ten connections.
pub(crate) fn short(context: &BenchContext) -> Result<String, String> {
    let arena = Arena::new(context)?;
    let seconds = arena.seconds(1.0);
    let all = arena.rounds(Scenario::rack("/", &["-c", "10", "-d", &seconds]))?;
    let mut table = requests_table("Short Rack app, 121 bytes, 10 connections, `-w 2 -t 2`", &all);
    let speed = |name| median_of(&all, name, Run::requests_per_second);
    let cost = |name| median_of(&all, name, Run::cpu_us);
    let against = |name| ratio(speed("thruway"), speed(name));
    table.target("requests/s ≥ 1.25 × iodine", at_least(against("iodine"), 1.25));
    table.target("requests/s ≥ 3 × Puma 5.6", at_least(against("Puma 5.6"), 3.0));
    table.target("requests/s ≥ 3 × Puma 8", at_least(against("Puma 8"), 3.0));
    let cheaper = ratio(cost("thruway"), cost("iodine"));
    table.target("processor time a request ≤ .75 × iodine", at_most(cheaper, 0.75));
    Ok(table.text())
}

/// Measures sixteen pipelined requests on each connection.
pub(crate) fn pipelined(context: &BenchContext) -> Result<String, String> {
    let arena = Arena::new(context)?;
    let seconds = arena.seconds(1.0);
    let options = ["-c", "10", "--pipeline", "16", "-d", &seconds];
    let all = arena.rounds(Scenario::rack("/", &options))?;
    let title = "Short Rack app, 16 requests pipelined on each of 10 connections, `-w 2 -t 2`";
    Ok(requests_table(title, &all).text())
}

/// Measures a response that waits for 50 ms: sixteen threads have room for ten connections.
pub(crate) fn sleeping(context: &BenchContext) -> Result<String, String> {
    let arena = Arena::new(context)?;
    const IDEAL: f64 = 10.0 / 0.05;
    let seconds = arena.seconds(1.0);
    let options = ["-c", "10", "-d", &seconds];
    let all = arena.rounds(Scenario { threads: 8, ..Scenario::rack("/sleep", &options) })?;
    let mut table = requests_table("sleep(50 ms), 10 connections, `-w 2 -t 8`", &all);
    let share = ratio(median_of(&all, "thruway", Run::requests_per_second), Some(IDEAL));
    table.target("requests/s ≥ .97 of the ideal 200", at_least(share, 0.97));
    Ok(table.text())
}

/// Measures a page of a Rails application with a look-up in its database.
pub(crate) fn rails(context: &BenchContext) -> Result<String, String> {
    let arena = Arena::new(context)?;
    let seconds = arena.seconds(1.0);
    let options = ["-c", "10", "-d", &seconds];
    let all = arena.rounds(Scenario { app: App::Rails, ..Scenario::rack("/stops/3", &options) })?;
    Ok(requests_table("A page of `examples/rails_app`, 10 connections, `-w 2 -t 2`", &all).text())
}

/// Measures one client that rests between requests beside nine that never do; 5 ms of processor time each.
pub(crate) fn polite(context: &BenchContext) -> Result<String, String> {
    let arena = Arena::new(context)?;
    let seconds = arena.seconds(3.0);
    let options = ["--mix", "greedy=9,polite=1", "-d", &seconds];
    let all = arena.rounds(Scenario::rack("/cpu", &options))?;
    let columns = ["server", "polite p50 ms", "polite p99 ms", "±", "greedy requests/s", "lost"];
    let title = "One polite client beside 9 greedy ones, 5 ms of CPU a request, `-w 2 -t 2`";
    let mut table = Table::new(title, &columns);
    for measured in &all {
        let p99 = measured.series(polite_p99_ms);
        table.row(
            measured.name,
            &[
                format!(
                    "{:.1}",
                    measured.median(|run| run.class("polite", "/latency/p50_ns") / 1e6)
                ),
                format!("{:.1}", p99.median()),
                format!("{:.0} %", p99.spread() * 100.0),
                format!(
                    "{:.0}",
                    measured.median(|run| run.class("greedy", "/requests_per_second"))
                ),
                format!("{:.0}", measured.median(Run::lost)),
            ],
        );
    }
    let p99 = |name| median_of(&all, name, polite_p99_ms);
    let peer = p99("Falcon").or_else(|| {
        let pumas = ["Puma 8", "Puma 5.6"].into_iter().filter_map(p99);
        pumas.min_by(f64::total_cmp)
    });
    let against = ratio(p99("thruway"), peer);
    table.target("polite p99 ≤ .6 × Falcon, or else the better Puma", at_most(against, 0.6));
    Ok(table.text())
}

fn polite_p99_ms(run: &Run) -> f64 {
    run.class("polite", "/latency/p99_ns") / 1e6
}

/// A row per server: speed, cost, latency, fairness.
pub(super) fn requests_table(title: &str, all: &[ServerRuns]) -> Table {
    let columns = [
        "server",
        "requests/s",
        "±",
        "CPU µs a request",
        "p50 ms",
        "p99 ms",
        "Jain",
        "starved",
        "lost",
    ];
    let mut table = Table::new(title, &columns);
    for measured in all {
        let speed = measured.series(Run::requests_per_second);
        table.row(
            measured.name,
            &[
                format!("{:.0}", speed.median()),
                format!("{:.0} %", speed.spread() * 100.0),
                format!("{:.1}", measured.median(Run::cpu_us)),
                format!("{:.2}", measured.median(|run| run.total("/latency/p50_ns") / 1e6)),
                format!("{:.2}", measured.median(|run| run.total("/latency/p99_ns") / 1e6)),
                format!("{:.3}", measured.median(Run::jain)),
                format!("{:.0}", measured.series(Run::starved).largest()),
                format!("{:.0}", measured.series(Run::lost).largest()),
            ],
        );
    }
    table
}
