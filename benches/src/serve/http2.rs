//! HTTP/2 with h2load: the speed of a short application, and the share of a client with many streams beside others.

use std::process::{Child, Command, Stdio};

use super::arena::{Arena, Scenario};
use super::contender::Contender;
use super::running::RunningServer;
use super::server::App;
use crate::context::BenchContext;
use crate::measure::Series;
use crate::table::{Table, at_least, at_most, ratio};

/// The servers that speak HTTP/2 without TLS by prior knowledge.
const SPEAKERS: [&str; 3] = ["thruway", "Falcon", "Itsi"];

/// The figures of h2load for a run.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct Report {
    requests_per_second: f64,
    /// Requests that failed, of all kinds.
    lost: f64,
}

/// Returns three tables.
pub(crate) fn run(context: &BenchContext) -> Result<String, String> {
    let arena = Arena::new(context)?;
    Ok([short(&arena)?, share(&arena, "/")?, share(&arena, "/cpu")?].join("\n\n"))
}

fn speakers<'a>(arena: &'a Arena<'_>) -> Vec<&'a Contender> {
    let speaks = |one: &&Contender| SPEAKERS.iter().any(|name| one.name.starts_with(name));
    arena.servers(App::Rack).filter(speaks).collect()
}

fn short(arena: &Arena<'_>) -> Result<String, String> {
    let scenario = Scenario::rack("/", &[]);
    let speakers = speakers(arena);
    let mut all: Vec<_> = speakers.iter().map(|one| (one.name, Vec::new())).collect();
    for _ in 0..arena.context.rounds {
        for (contender, (_, reports)) in speakers.iter().zip(&mut all) {
            if let Some(running) = arena.start(contender, scenario)? {
                let load = begin(arena, &running, scenario.path, ["10", "10"])?;
                reports.push(end(load)?);
            }
        }
    }
    let title = "HTTP/2: short Rack app, 10 connections of 10 streams, `-w 2 -t 2`";
    let mut table = Table::new(title, &["server", "requests/s", "±", "lost"]);
    let speed = |name, reports: &[Report]| {
        Series::new(name, reports.iter().map(|report| report.requests_per_second).collect())
    };
    all.retain(|(_, reports)| !reports.is_empty());
    for (name, reports) in &all {
        let lost = reports.iter().map(|report| report.lost).fold(0.0, f64::max);
        let (rate, spread) = (speed(name, reports).median(), speed(name, reports).spread());
        let cells =
            [format!("{rate:.0}"), format!("{:.0} %", spread * 100.0), format!("{lost:.0}")];
        table.row(name, &cells);
    }
    let of = |name: &str| {
        let found = all.iter().find(|(own, _)| *own == name);
        found.map(|(own, reports)| speed(own, reports).median())
    };
    // The peers of each system run on the same Ruby.
    let systems = all.iter().filter_map(|(name, _)| name.strip_prefix("thruway"));
    let against = |system: &str| {
        let peers = ["Falcon", "Itsi"].map(|peer| of(&format!("{peer}{system}")));
        let best = peers.into_iter().flatten().reduce(f64::max);
        ratio(of(&format!("thruway{system}")), best)
    };
    let worst = systems.filter_map(against).reduce(f64::min);
    table.target("requests/s ≥ 1.2 × the best peer's", at_least(worst, 1.2));
    Ok(table.text())
}

/// Measures the requests of a client with 100 streams, as a multiple of those of one of nine clients with one stream
/// each.
fn share(arena: &Arena<'_>, path: &'static str) -> Result<String, String> {
    let title = format!(
        "HTTP/2, `{path}`: one client with 100 streams beside nine with one each, `-w 1 -t 2`"
    );
    let columns = ["server", "requests/s of the one", "of each of the nine", "shares", "lost"];
    let mut table = Table::new(&title, &columns);
    let mut ours = None;
    for contender in speakers(arena) {
        let rounds = beside(arena, contender, path)?;
        if rounds.is_empty() {
            continue;
        }
        let median = |number: fn(&[Report; 2]) -> f64| {
            Series::new(contender.name, rounds.iter().map(number).collect()).median()
        };
        let shares = median(|[one, nine]| one.requests_per_second * 9.0 / nine.requests_per_second);
        let cells = [
            format!("{:.1}", median(|[one, _]| one.requests_per_second)),
            format!("{:.1}", median(|[_, nine]| nine.requests_per_second / 9.0)),
            format!("{shares:.2}"),
            format!("{:.0}", median(|[one, nine]| one.lost + nine.lost)),
        ];
        table.row(contender.name, &cells);
        if contender.is_ours() {
            ours = Some(shares);
        }
    }
    table.target("no more than 1.5 shares", at_most(ours, 1.5));
    Ok(table.text())
}

/// Runs two loads side by side in each round: one connection with 100 streams, and nine connections with one stream
/// each.
fn beside(
    arena: &Arena<'_>,
    contender: &Contender,
    path: &'static str,
) -> Result<Vec<[Report; 2]>, String> {
    let scenario = Scenario { workers: 1, ..Scenario::rack(path, &[]) };
    let mut rounds = Vec::new();
    for _ in 0..arena.context.rounds {
        let Some(running) = arena.start(contender, scenario)? else { break };
        let one = begin(arena, &running, path, ["1", "100"])?;
        let nine = begin(arena, &running, path, ["9", "1"])?;
        rounds.push([end(one)?, end(nine)?]);
    }
    Ok(rounds)
}

/// Starts h2load with the given numbers of connections and of streams on each.
fn begin(
    arena: &Arena<'_>,
    server: &RunningServer,
    path: &str,
    [connections, streams]: [&str; 2],
) -> Result<Child, String> {
    let mut command = Command::new("h2load");
    command.args(["-c", connections, "-m", streams, "-D", &arena.seconds(1.0)]);
    command.arg(server.url(path)).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().map_err(|error| format!("cannot start h2load: {error}"))
}

fn end(load: Child) -> Result<Report, String> {
    let output = load.wait_with_output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    report(&text).ok_or_else(|| format!("h2load does not say how fast it was:\n{text}"))
}

/// Parses `finished in 1.00s, 5.00 req/s, …` and `requests: 9 total, …, 1 failed, 0 errored, 0 timeout`.
fn report(text: &str) -> Option<Report> {
    let line = |start: &str| text.lines().find_map(|line| line.strip_prefix(start));
    let before = |line: &str, word: &str| {
        let part = line.split(", ").find_map(|part| part.strip_suffix(word))?;
        part.trim().parse::<f64>().ok()
    };
    let requests_per_second = before(line("finished in ")?, " req/s")?;
    let requests = line("requests: ")?;
    let lost = [" failed", " errored", " timeout"].map(|word| before(requests, word));
    Some(Report { requests_per_second, lost: lost.into_iter().flatten().sum() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_and_what_failed_are_read() {
        let text = "starting benchmark...\n\nfinished in 3.00s, 1234.50 req/s, 51.20KB/s\n\
                    requests: 9 total, 9 started, 9 done, 6 succeeded, 2 failed, 1 errored, 4 timeout\n";
        assert_eq!(report(text), Some(Report { requests_per_second: 1234.5, lost: 7.0 }));
        assert_eq!(report("h2load: error\n"), None);
    }
}
