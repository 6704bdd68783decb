//! Restarts under load: 200 connections send requests all the time, and the server restarts every second.

use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::arena::{Arena, Scenario};
use super::contender::Contender;
use super::load::Run;
use super::running::RunningServer;
use super::server::{App, Program, Server};
use crate::context::BenchContext;
use crate::measure::Series;
use crate::table::{Table, at_most};

/// Requests per second over all connections. At 300, the two 1.5 ms parts of a page take half of two processors.
const RATES: [&str; 2] = ["100", "300"];
const CONNECTIONS: &str = "200";
const WORKERS: [u32; 2] = [2, 4];
const THREADS: u32 = 5;

/// The time from one restart to the next, or longer if the first has not ended.
const PERIOD: Duration = Duration::from_secs(1);
/// The time limit of a restart.
const RESTART_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(10);

/// The maximum p99 during restarts, as a multiple of the p99 without restarts.
const RATIO_MAX: f64 = 3.0;

/// A kind of restart: the server, the signal, and the line that it logs at the end.
struct Kind {
    name: &'static str,
    server: Server,
    signal: Signal,
    ended: &'static str,
    /// Whether each worker logs the line, instead of the supervisor once.
    by_worker: bool,
}

static KINDS: [Kind; 3] = [
    Kind {
        name: "hot",
        server: Server::for_rack("thruway", Program::Ours, OURS, ""),
        signal: Signal::USR2,
        ended: "hot restart: done",
        by_worker: false,
    },
    Kind {
        name: "phased",
        server: Server::for_rack("thruway", Program::Ours, OURS, "preload_app! false\n"),
        signal: Signal::USR1,
        ended: "phased restart: done",
        by_worker: false,
    },
    Kind {
        name: "phased",
        server: Server::for_rack("Puma 8", Program::Peer("puma8"), PUMA, "preload_app! false\n"),
        signal: Signal::USR1,
        ended: ") booted in ",
        by_worker: true,
    },
];

const OURS: &str = "serve {app} -b tcp://127.0.0.1:{port} -w {workers} -t {threads} \
    -e production -C {run}/config";

const PUMA: &str = "-b tcp://127.0.0.1:{port} -w {workers} -t {threads}:{threads} -e production \
    -C {run}/config {app}/config.ru";

/// The clients' requests before and during restarts.
struct RestartRuns {
    before: Run,
    during: Run,
    /// The duration of each restart in seconds.
    restarts: Vec<f64>,
}

/// Returns a table for each rate.
pub(crate) fn run(context: &BenchContext) -> Result<String, String> {
    let arena = Arena::new(context)?;
    let tables: Result<Vec<_>, _> = RATES.iter().map(|rate| measure(&arena, rate)).collect();
    Ok(tables?.join("\n\n"))
}

fn measure(arena: &Arena<'_>, rate: &str) -> Result<String, String> {
    let restarts = arena.context.rounds;
    let title =
        format!("Restarts: {CONNECTIONS} connections, {rate} requests/s, {restarts} restarts");
    let columns =
        ["server", "requests", "failed", "p99 ms before", "p99 ms during", "÷", "one restart, s"];
    let mut table = Table::new(&title, &columns);
    let mut ours: Vec<RestartRuns> = Vec::new();
    for kind in &KINDS {
        let Some(contender) = Contender::of(arena.context, &kind.server) else { continue };
        for workers in WORKERS {
            let Some(noticed) = notice(arena, &contender, kind, workers, rate)? else { continue };
            table.row(
                &format!("{}, {}, `-w {workers}`", contender.name, kind.name),
                &noticed.cells(),
            );
            if contender.is_ours() {
                ours.push(noticed);
            }
        }
    }
    let worst = ours.iter().map(RestartRuns::ratio).reduce(f64::max);
    table.target("p99 during a restart ≤ 3 × before", at_most(worst, RATIO_MAX));
    let failed = ours.iter().map(RestartRuns::failed).reduce(f64::max);
    table.target("no failed request", at_most(failed, 0.0));
    Ok(table.text())
}

/// Loads one server without restarts and then with them. `None` if the server does not start.
fn notice(
    arena: &Arena<'_>,
    contender: &Contender,
    kind: &Kind,
    workers: u32,
    rate: &str,
) -> Result<Option<RestartRuns>, String> {
    let seconds = arena.seconds(1.0);
    let shape = ["-c", CONNECTIONS, "--rate", rate, "--arrivals", "poisson", "-d"];
    let options = [shape.as_slice(), &[seconds.as_str()]].concat();
    let scenario =
        Scenario { app: App::Shapes, workers, threads: THREADS, path: "/page", options: &options };
    let Some(running) = arena.start(contender, scenario)? else { return Ok(None) };
    let before = arena.load(&running, scenario)?;
    // The last restart takes a second, too.
    let seconds = (arena.context.rounds + 1).to_string();
    let options = [shape.as_slice(), &[seconds.as_str()]].concat();
    let loading = arena.begin(&running, Scenario { options: &options, ..scenario })?;
    let restarts = restart_each_second(&running, kind, workers, arena.context.rounds);
    let during = Run::without_cpu(loading.end()?);
    Ok(Some(RestartRuns { before, during, restarts: restarts? }))
}

/// Restarts the server once a second; returns the duration of each restart in seconds.
fn restart_each_second(
    running: &RunningServer,
    kind: &Kind,
    workers: u32,
    count: usize,
) -> Result<Vec<f64>, String> {
    let marks = if kind.by_worker { workers as usize } else { 1 };
    let mut all = Vec::new();
    for _ in 0..count {
        let begun = Instant::now();
        let before = running.output().matches(kind.ended).count();
        running.signal(kind.signal);
        while running.output().matches(kind.ended).count() < before + marks {
            if begun.elapsed() > RESTART_MAX {
                return Err(format!(
                    "a {} restart does not end: {}",
                    kind.name,
                    running.last_words()
                ));
            }
            sleep(POLL);
        }
        all.push(begun.elapsed().as_secs_f64());
        sleep(PERIOD.saturating_sub(begun.elapsed()));
    }
    Ok(all)
}

impl RestartRuns {
    fn cells(&self) -> Vec<String> {
        let p99_ms = |run: &Run| format!("{:.1}", run.total("/latency/p99_ns") / 1e6);
        vec![
            format!("{:.0}", self.during.total("/requests")),
            format!("{:.0}", self.failed()),
            p99_ms(&self.before),
            p99_ms(&self.during),
            format!("{:.2}", self.ratio()),
            format!("{:.2}", Series::new("", self.restarts.clone()).median()),
        ]
    }

    fn ratio(&self) -> f64 {
        let p99 = |run: &Run| run.total("/latency/p99_ns");
        p99(&self.during) / p99(&self.before)
    }

    /// The number of lost or refused requests, or of broken connections if greater.
    fn failed(&self) -> f64 {
        self.during.lost().max(self.during.broken())
    }
}
