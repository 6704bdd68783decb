//! `thruway load` against wrk and oha on one nginx, with one thread and with two: the requests per second that each
//! gets, and the processor time that each takes. Against wrk2: the latencies at a constant rate.

use std::process::{Command, Stdio};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use serde_json::Value;

use super::serve::arena::{Arena, Scenario};
use super::serve::running::RunningServer;
use super::serve::server::App;
use crate::context::BenchContext;
use crate::measure::Series;
use crate::process::cpu_seconds;
use crate::table::{Table, at_least, at_most, ratio};

const CONNECTIONS: &str = "64";
const PATH: &str = "/10k";
/// The constant rate of the latencies, in requests per second.
const RATE: &str = "10000";

/// A way to load the server.
struct LoadGenerator {
    /// The row's name, with the number of threads.
    name: String,
    program: String,
    arguments: Vec<String>,
    variables: Vec<(&'static str, String)>,
    read: fn(&str) -> Option<Outcome>,
}

/// The figures of one run.
struct Outcome {
    requests: f64,
    requests_per_second: f64,
    p50_us: f64,
    p99_us: f64,
}

/// One run, with the processor seconds of the load generator and of the server.
struct Run {
    outcome: Outcome,
    cpu_s: f64,
    server_cpu_s: f64,
}

/// The figures of all runs of one load generator.
struct GeneratorFigures {
    requests_per_second: Series,
    /// The processor time of the load generator per request, in microseconds.
    cpu_us: Series,
    /// The processor time of the load generator and of the server per request, in microseconds.
    both_cpu_us: Series,
    p50_us: Series,
    p99_us: Series,
}

pub(super) fn run(context: &BenchContext) -> Result<String, String> {
    let arena = Arena::new(context)?;
    let scenario = Scenario { app: App::Folder, workers: 2, threads: 1, path: PATH, options: &[] };
    let nginx = arena.servers(App::Folder).find(|contender| contender.name == "nginx");
    let contender = nginx.ok_or("nginx is not at hand")?;
    let nginx = arena.start(contender, scenario)?.ok_or("nginx does not start")?;
    let seconds = arena.context.seconds.ceil();
    let closed = throughput(context, &nginx, seconds)?;
    let open = latencies(context, &nginx, seconds)?;
    Ok(format!("{closed}\n\n{open}"))
}

/// Compares closed loops.
fn throughput(
    context: &BenchContext,
    nginx: &RunningServer,
    seconds: f64,
) -> Result<String, String> {
    let url = nginx.url(PATH);
    let mut generators = Vec::new();
    for threads in [1, 2] {
        generators.push(thruway(context, &url, seconds, threads));
        generators.push(wrk("wrk", "wrk", &url, seconds, threads));
        generators.extend(oha(context, &url, seconds, threads));
    }
    let all = measure(context.rounds, nginx, &generators)?;
    let title = "10 KB from nginx, two workers, 64 connections";
    let columns =
        ["", "requests/s", "÷ wrk", "its CPU, µs a request", "with the server's, µs", "wrk's ÷ it"];
    let mut table = Table::new(title, &columns);
    for (generator, measured) in generators.iter().zip(&all) {
        let threads = generator.name.split(", ").last().unwrap_or_default();
        let peer = |of: fn(&GeneratorFigures) -> f64| {
            figure(&generators, &all, &format!("wrk, {threads}"), of).unwrap_or(f64::NAN)
        };
        let rate = measured.rate() / peer(GeneratorFigures::rate);
        let cost = peer(GeneratorFigures::cost) / measured.cost();
        let cells = [
            measured.requests_per_second.cell(),
            format!("{rate:.2}"),
            measured.cpu_us.cell(),
            measured.both_cpu_us.cell(),
            format!("{cost:.2}"),
        ];
        table.row(&generator.name, &cells);
    }
    let rate = |name: &str| figure(&generators, &all, name, GeneratorFigures::rate);
    for (threads, least) in [("1 thread", 1.0), ("2 threads", 1.3)] {
        for peer in ["wrk", "oha"] {
            let compared = ratio(
                rate(&format!("thruway load, {threads}")),
                rate(&format!("{peer}, {threads}")),
            );
            table.target(&format!("{threads} ≥ {least} × {peer}"), at_least(compared, least));
        }
    }
    Ok(table.text())
}

/// Compares latencies in an open loop, which count from when a request was due.
fn latencies(
    context: &BenchContext,
    nginx: &RunningServer,
    seconds: f64,
) -> Result<String, String> {
    let url = nginx.url(PATH);
    let mut ours = thruway(context, &url, seconds, 1);
    ours.arguments.extend(["--rate", RATE].map(str::to_owned));
    let mut generators = vec![ours];
    match context.peers.get("wrk2") {
        Some(program) => {
            let program = program.display().to_string();
            // wrk2 spends the first ten seconds on its calibration, which count in no latency.
            let mut wrk2 = wrk("wrk2", &program, &url, seconds + 10.0, 1);
            wrk2.arguments.extend(["-R", RATE, "--latency"].map(str::to_owned));
            generators.push(wrk2);
        }
        None => println!("skipped: wrk2 is not given (--peer wrk2=PATH)"),
    }
    let all = measure(context.rounds, nginx, &generators)?;
    let title = "10,000 requests/s of the same, 64 connections";
    let mut table = Table::new(title, &["", "requests/s", "p50, µs", "p99, µs"]);
    for (generator, measured) in generators.iter().zip(&all) {
        let series = [&measured.requests_per_second, &measured.p50_us, &measured.p99_us];
        table.row(&generator.name, &series.map(Series::cell));
    }
    let p50 = |name: &str| figure(&generators, &all, name, |one| one.p50_us.median());
    let compared = ratio(p50("thruway load, 1 thread"), p50("wrk2, 1 thread"));
    table.target("p50 ≤ 1.05 × wrk2", at_most(compared, 1.05));
    Ok(table.text())
}

fn thruway(context: &BenchContext, url: &str, seconds: f64, threads: u32) -> LoadGenerator {
    let (seconds, threads_word) = (seconds.to_string(), threads.to_string());
    let arguments =
        ["load", "--json", url, "-c", CONNECTIONS, "-d", &seconds, "--threads", &threads_word];
    LoadGenerator {
        name: name("thruway load", threads),
        program: context.root.join("target/release/thruway").display().to_string(),
        arguments: arguments.map(str::to_owned).to_vec(),
        variables: Vec::new(),
        read: |text| {
            let report: Value = serde_json::from_str(text).ok()?;
            let total = |pointer: &str| report["total"].pointer(pointer)?.as_f64();
            Some(Outcome {
                requests: total("/requests")?,
                requests_per_second: total("/requests_per_second")?,
                p50_us: total("/latency/p50_ns")? / 1e3,
                p99_us: total("/latency/p99_ns")? / 1e3,
            })
        },
    }
}

/// wrk, or wrk2, which has the same options and output. Both take whole seconds only.
fn wrk(peer: &str, program: &str, url: &str, seconds: f64, threads: u32) -> LoadGenerator {
    let (seconds, threads_word) = (format!("{seconds:.0}"), threads.to_string());
    let arguments = ["-t", &threads_word, "-c", CONNECTIONS, "-d", &seconds, "--latency", url];
    LoadGenerator {
        name: name(peer, threads),
        program: program.to_owned(),
        arguments: arguments.map(str::to_owned).to_vec(),
        variables: Vec::new(),
        read: wrk_outcome,
    }
}

fn wrk_outcome(text: &str) -> Option<Outcome> {
    let behind = |start: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(start))?;
        line.split_whitespace().next()
    };
    let requests = text.lines().find_map(|line| line.split_once(" requests in "))?.0.trim();
    Some(Outcome {
        requests: requests.parse().ok()?,
        requests_per_second: behind("Requests/sec:")?.parse().ok()?,
        p50_us: microseconds(behind("50%").or(behind("50.000%"))?)?,
        p99_us: microseconds(behind("99%").or(behind("99.000%"))?)?,
    })
}

/// Reads a time as wrk writes it, such as `1.25ms`.
fn microseconds(text: &str) -> Option<f64> {
    let units = [("us", 1.0), ("ms", 1e3), ("s", 1e6)];
    let (number, unit) =
        units.iter().find_map(|(unit, us)| Some((text.strip_suffix(unit)?, us)))?;
    number.parse::<f64>().ok().map(|number| number * unit)
}

fn oha(context: &BenchContext, url: &str, seconds: f64, threads: u32) -> Option<LoadGenerator> {
    let Some(program) = context.peers.get("oha") else {
        println!("skipped: oha is not given (--peer oha=PATH)");
        return None;
    };
    let duration = format!("{seconds}s");
    let arguments =
        ["--no-tui", "--output-format", "json", "-z", &duration, "-c", CONNECTIONS, url];
    Some(LoadGenerator {
        name: name("oha", threads),
        program: program.display().to_string(),
        arguments: arguments.map(str::to_owned).to_vec(),
        variables: vec![("TOKIO_WORKER_THREADS", threads.to_string())],
        read: |text| {
            let report: Value = serde_json::from_str(text).ok()?;
            let number = |pointer: &str| report.pointer(pointer)?.as_f64();
            let rate = number("/summary/requestsPerSec")?;
            Some(Outcome {
                requests: rate * number("/summary/total")?,
                requests_per_second: rate,
                p50_us: number("/latencyPercentiles/p50")? * 1e6,
                p99_us: number("/latencyPercentiles/p99")? * 1e6,
            })
        },
    })
}

fn name(peer: &str, threads: u32) -> String {
    format!("{peer}, {threads} thread{}", if threads == 1 { "" } else { "s" })
}

/// Runs every load generator once a round.
fn measure(
    rounds: usize,
    server: &RunningServer,
    generators: &[LoadGenerator],
) -> Result<Vec<GeneratorFigures>, String> {
    let mut runs: Vec<Vec<Run>> = generators.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for (generator, runs) in generators.iter().zip(&mut runs) {
            runs.push(generator.run(server)?);
        }
    }
    let measured = |runs: &Vec<Run>| {
        let series = |of: fn(&Run) -> f64| Series::new("", runs.iter().map(of).collect());
        let a_request = |cpu_s: f64, run: &Run| cpu_s * 1e6 / run.outcome.requests;
        let of_both = |run: &Run| a_request(run.cpu_s + run.server_cpu_s, run);
        GeneratorFigures {
            requests_per_second: series(|run| run.outcome.requests_per_second),
            cpu_us: Series::new("", runs.iter().map(|run| a_request(run.cpu_s, run)).collect()),
            both_cpu_us: Series::new("", runs.iter().map(of_both).collect()),
            p50_us: series(|run| run.outcome.p50_us),
            p99_us: series(|run| run.outcome.p99_us),
        }
    };
    Ok(runs.iter().map(measured).collect())
}

fn figure(
    generators: &[LoadGenerator],
    all: &[GeneratorFigures],
    name: &str,
    of: impl Fn(&GeneratorFigures) -> f64,
) -> Option<f64> {
    let mut both = generators.iter().zip(all);
    both.find(|(generator, _)| generator.name == name).map(|(_, measured)| of(measured))
}

impl GeneratorFigures {
    fn rate(&self) -> f64 {
        self.requests_per_second.median()
    }

    fn cost(&self) -> f64 {
        self.both_cpu_us.median()
    }
}

impl LoadGenerator {
    fn run(&self, server: &RunningServer) -> Result<Run, String> {
        let processes = server.processes();
        let before = cpu_seconds(&processes);
        let failed = |error: std::io::Error| format!("{}: {error}", self.name);
        let output = tempfile::NamedTempFile::new().map_err(failed)?;
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stderr(Stdio::null());
        command.stdout(output.reopen().map_err(failed)?);
        let mut child = command.spawn().map_err(failed)?;
        let id = child.id();
        // The processor time of a process is lost with its status, so the status stays until the time is read.
        if let Some(id) = i32::try_from(id).ok().and_then(Pid::from_raw) {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            waitid(WaitId::Pid(id), options).map_err(|errno| failed(errno.into()))?;
        }
        let cpu_s = cpu_seconds(&[id]);
        child.wait().map_err(failed)?;
        let text = std::fs::read_to_string(output.path()).map_err(failed)?;
        let outcome = (self.read)(&text).ok_or_else(|| format!("{} said: {text}", self.name))?;
        Ok(Run { outcome, cpu_s, server_cpu_s: cpu_seconds(&processes) - before })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_wrk_and_of_wrk2_is_read() {
        let wrk = "  Latency Distribution\n     50%  611.00us\n     99%    1.25ms\n  \
                   1234 requests in 2.00s, 1MB read\nRequests/sec:    617.00\n";
        let wrk2 = "  Latency Distribution (HdrHistogram - Recorded Latency)\n 50.000%  611.00us\n \
                    99.000%    1.25ms\n  1234 requests in 2.00s, 1MB read\nRequests/sec:    617.00\n";
        for text in [wrk, wrk2] {
            let outcome = wrk_outcome(text).expect("an outcome");
            let figures = [outcome.requests, outcome.requests_per_second, outcome.p50_us];
            assert_eq!(figures, [1234.0, 617.0, 611.0]);
            assert!((outcome.p99_us - 1250.0).abs() < 1e-6);
        }
        assert_eq!(microseconds("2.00s"), Some(2e6));
    }
}
