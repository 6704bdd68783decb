//! Requests that wait: streams and long waits beside short requests, many short waits at once, and waits beside
//! requests that compute.

use super::arena::{Arena, Scenario, ServerRuns, median_of};
use super::contender::Contender;
use super::load::{Run, load};
use super::server::{App, Program, Server};
use crate::context::BenchContext;
use crate::table::{Table, at_least, at_most, ratio};

/// Requests that are begun at once, of each kind, and answered one after the other on each connection.
const STREAMS: u32 = 50;
const WAITS: u32 = 50;
/// Short requests per second, on ten connections.
const SHORT_RATE: u32 = 20;
/// The duration of the mix as a multiple of the context's seconds: a single stream takes five seconds.
const MIX_TIMES: f64 = 3.0;

static FIBERS: Server = Server::for_rack(
    "thruway, `--fibers`",
    Program::Ours,
    "serve {app} -b tcp://127.0.0.1:{port} -w {workers} -t {threads} -e production --fibers 1000",
    "",
);

static WAITING_THREADS: Server = Server::for_rack(
    "thruway, `--waiting-threads`",
    Program::Ours,
    "serve {app} -b tcp://127.0.0.1:{port} -w {workers} -t {threads} -e production \
     --waiting-threads 128",
    "",
);

static IO_THREADS: Server = Server::for_rack(
    "Puma, `max_io_threads`",
    Program::Installed("puma"),
    "-b tcp://127.0.0.1:{port} -w {workers} -t {threads}:{threads} -e production -C {run}/config \
     {app}/config.ru",
    "max_io_threads 128\n",
);

/// All Rack servers as they are, and those with modes for waiting requests once more in each mode.
fn contenders<'a>(arena: &'a Arena<'_>, modes: &'a [Contender]) -> Vec<&'a Contender> {
    modes.iter().chain(arena.servers(App::Waiting)).collect()
}

fn modes(context: &BenchContext) -> Vec<Contender> {
    Contender::in_all_systems(context, &[&FIBERS, &WAITING_THREADS, &IO_THREADS])
}

/// Measures fifty streams and fifty waits of two seconds, which leave no thread free, beside short requests.
pub(crate) fn mix(context: &BenchContext) -> Result<String, String> {
    let (arena, modes) = (Arena::new(context)?, modes(context));
    let seconds = arena.seconds(MIX_TIMES);
    let classes = [
        format!("greedy={STREAMS},url=1"),
        format!("greedy={WAITS},url=2"),
        format!("scheduled=10,rate={SHORT_RATE},url=3"),
    ];
    let options = classes.iter().flat_map(|class| ["--class", class]).chain(["-d", &seconds]);
    let options: Vec<_> = options.collect();
    let scenario = Scenario { app: App::Waiting, threads: 5, ..Scenario::rack("/", &options) };
    let all = rounds(&arena, &contenders(&arena, &modes), scenario, &["/stream", "/wait", "/"])?;
    let title = format!(
        "{STREAMS} streams of 5 s and {WAITS} waits of 2 s at any time, beside {SHORT_RATE} short \
         requests/s, `-w 2 -t 5`"
    );
    let columns = [
        "server",
        "streams",
        "waits",
        "short",
        "short, not answered",
        "short p50 ms",
        "short p99 ms",
    ];
    let mut table = Table::new(&title, &columns);
    for measured in &all {
        let number = |path, pointer| measured.median(|run| run.class_of(path, pointer));
        let answered = ["/stream", "/wait", "/"].map(|path| number(path, "/requests"));
        let lost = number("/", "/failed") + number("/", "/fairness/pending");
        let times = ["/latency/p50_ns", "/latency/p99_ns"].map(|pointer| number("/", pointer));
        let counts = answered.into_iter().chain([lost]).map(|count| format!("{count:.0}"));
        // Without a response there is no time.
        let shown = |ns: f64| if ns > 0.0 { format!("{:.1}", ns / 1e6) } else { "–".to_owned() };
        let times = times.map(shown);
        table.row(measured.name, &counts.chain(times).collect::<Vec<_>>());
    }
    let p99_ms = |run: &Run| run.class_of("/", "/latency/p99_ns") / 1e6;
    for system in systems(&all) {
        let of = |name: &str| median_of(&all, &format!("{name}{system}"), p99_ms);
        for mode in [&FIBERS, &WAITING_THREADS] {
            let ours = at_most(of(mode.name), 10.0);
            table.target(&format!("{}{system}: short p99 ≤ 10 ms", mode.name), ours);
        }
        let against = at_most(ratio(of(FIBERS.name), of("Falcon")), 1.0);
        table.target(&format!("fibers{system}: short p99 ≤ Falcon's"), against);
    }
    Ok(table.text())
}

/// Measures a response that waits for 50 ms, for 20 and for 1,000 clients.
pub(crate) fn naps(context: &BenchContext) -> Result<String, String> {
    let few = ClosedLoop { speed_min: 1.0, p99_max: 1.0, ..ClosedLoop::of_naps(20) };
    let many = ClosedLoop { speed_min: 1.3, p99_max: 0.7, ..ClosedLoop::of_naps(1000) };
    closed_loops(context, &[few, many])
}

/// Measures a page that waits and computes in turn, for 20 and for 200 clients.
pub(crate) fn pages(context: &BenchContext) -> Result<String, String> {
    let pages = |clients| ClosedLoop {
        app: App::Waiting,
        what: "A page that waits for 10 ms and computes for 3 ms",
        path: "/page",
        clients,
        speed_min: 1.15,
        p99_max: 0.8,
        cpu_max: None,
        jain_min: None,
    };
    closed_loops(context, &[pages(20), pages(200)])
}

/// Measures a page of Rails with three queries and a call to a service that takes 200 ms, for 100 clients.
pub(crate) fn rails(context: &BenchContext) -> Result<String, String> {
    let page = ClosedLoop {
        app: App::RailsWaits,
        what: "A page of Rails with three queries and a call of 200 ms to a service",
        path: "/page",
        clients: 100,
        speed_min: 1.1,
        p99_max: 1.0,
        cpu_max: None,
        jain_min: None,
    };
    closed_loops(context, &[page])
}

/// Requests that are sent again and again, and the targets relative to Falcon.
struct ClosedLoop {
    app: App,
    what: &'static str,
    path: &'static str,
    clients: u32,
    speed_min: f64,
    p99_max: f64,
    cpu_max: Option<f64>,
    jain_min: Option<f64>,
}

impl ClosedLoop {
    fn of_naps(clients: u32) -> Self {
        Self {
            app: App::Waiting,
            what: "A wait of 50 ms",
            path: "/nap",
            clients,
            speed_min: 1.0,
            p99_max: 1.0,
            cpu_max: Some(0.6),
            jain_min: Some(0.99),
        }
    }
}

fn closed_loops(context: &BenchContext, loops: &[ClosedLoop]) -> Result<String, String> {
    let (arena, modes) = (Arena::new(context)?, modes(context));
    let servers = contenders(&arena, &modes);
    let tables = loops.iter().map(|closed| closed_loop(&arena, &servers, closed));
    Ok(tables.collect::<Result<Vec<_>, _>>()?.join("\n\n"))
}

fn closed_loop(
    arena: &Arena<'_>,
    servers: &[&Contender],
    closed: &ClosedLoop,
) -> Result<String, String> {
    let ClosedLoop { app, what, path, clients, .. } = closed;
    let (count, seconds) = (clients.to_string(), arena.seconds(1.0));
    let options = ["-c", &count, "-d", &seconds];
    let scenario = Scenario { app: *app, threads: 5, ..Scenario::rack(path, &options) };
    let all = rounds(arena, servers, scenario, &[path])?;
    let title = format!("{what}, {count} clients, `-w 2 -t 5`");
    let columns = ["server", "requests/s", "±", "p99 ms", "Jain", "starved", "CPU µs a request"];
    let mut table = Table::new(&title, &columns);
    for measured in &all {
        let speed = measured.series(Run::requests_per_second);
        let cells = [
            format!("{:.0}", speed.median()),
            format!("{:.0} %", speed.spread() * 100.0),
            format!("{:.1}", measured.median(p99_ms)),
            format!("{:.3}", measured.median(Run::jain)),
            format!("{:.0}", measured.median(Run::starved)),
            format!("{:.0}", measured.median(Run::cpu_us)),
        ];
        table.row(measured.name, &cells);
    }
    for system in systems(&all) {
        note_targets(&mut table, &all, system, closed);
        if *app == App::RailsWaits {
            // The name has Puma's version.
            let is_puma = |name: &str| name.starts_with("Puma ") && name.ends_with(system);
            let puma = all.iter().find(|measured| is_puma(measured.name));
            let ours = median_of(&all, &format!("thruway{system}"), p99_ms);
            let against = ratio(ours, puma.map(|measured| measured.median(p99_ms)));
            let target = format!("threads{system}: p99 ≤ 0.8 × that of Puma with as many threads");
            table.target(&target, at_most(against, 0.8));
        }
    }
    Ok(table.text())
}

/// Compares fibers with Falcon on the system.
fn note_targets(table: &mut Table, all: &[ServerRuns], system: &str, closed: &ClosedLoop) {
    let of = |name: &str, number| median_of(all, &format!("{name}{system}"), number);
    let against = |number: fn(&Run) -> f64| ratio(of(FIBERS.name, number), of("Falcon", number));
    let mut target =
        |what: &str, reached| table.target(&format!("fibers{system}: {what}"), reached);
    let ClosedLoop { speed_min, p99_max, .. } = closed;
    let speed = at_least(against(Run::requests_per_second), *speed_min);
    target(&format!("requests/s ≥ {speed_min} × Falcon"), speed);
    target(&format!("p99 ≤ {p99_max} × Falcon"), at_most(against(p99_ms), *p99_max));
    if let Some(jain_min) = closed.jain_min {
        let jain = at_least(of(FIBERS.name, Run::jain), jain_min);
        target(&format!("Jain's index ≥ {jain_min}"), jain);
    }
    if let Some(cpu_max) = closed.cpu_max {
        target(&format!("CPU ≤ {cpu_max} × Falcon's"), at_most(against(Run::cpu_us), cpu_max));
    }
}

/// Measures requests that wait for 50 ms while one request in twenty computes for 200 ms.
pub(crate) fn computing(context: &BenchContext) -> Result<String, String> {
    const PATHS: [&str; 2] = ["/nap", "/compute"];
    let (arena, modes) = (Arena::new(context)?, modes(context));
    let seconds = arena.seconds(2.0);
    let options = ["-c", "20", "--weights", "19,1", "-d", &seconds];
    let scenario = Scenario { app: App::Waiting, threads: 5, ..Scenario::rack("/nap", &options) };
    let all = rounds(&arena, &contenders(&arena, &modes), scenario, &PATHS)?;
    let title = "A wait of 50 ms, and one request in twenty that computes for 200 ms, 20 clients, \
        `-w 2 -t 5`";
    let columns =
        ["server", "requests/s", "waits p50 ms", "waits p99 ms", "computing p50 ms", "p99 ms"];
    let mut table = Table::new(title, &columns);
    let ms = |path, pointer| move |run: &Run| run.url(path, pointer) / 1e6;
    for measured in &all {
        let speed = measured.median(Run::requests_per_second);
        let times = PATHS.into_iter().flat_map(|path| {
            let pointers = ["/latency/p50_ns", "/latency/p99_ns"];
            pointers.map(|pointer| measured.median(ms(path, pointer)))
        });
        let times = times.map(|time| format!("{time:.1}"));
        table.row(measured.name, &[vec![format!("{speed:.0}")], times.collect()].concat());
    }
    let waits_p99 = ms("/nap", "/latency/p99_ns");
    for system in systems(&all) {
        let of = |name: &str| median_of(&all, &format!("{name}{system}"), waits_p99);
        let against = at_most(ratio(of(FIBERS.name), of("Falcon")), 0.3);
        table.target(&format!("fibers{system}: p99 of waits ≤ 0.3 × Falcon's"), against);
    }
    Ok(table.text())
}

/// Measures the short application in fibers, which no request needs.
pub(crate) fn short(context: &BenchContext) -> Result<String, String> {
    static THREADS: Server = Server::for_rack(
        "thruway, threads",
        Program::Ours,
        "serve {app} -b tcp://127.0.0.1:{port} -w {workers} -t {threads} -e production",
        "",
    );
    let arena = Arena::new(context)?;
    let servers = Contender::in_all_systems(context, &[&FIBERS, &THREADS]);
    let seconds = arena.seconds(1.0);
    let options = ["-c", "10", "-d", &seconds];
    let scenario = Scenario { threads: 5, ..Scenario::rack("/", &options) };
    let all = rounds(&arena, &servers.iter().collect::<Vec<_>>(), scenario, &["/"])?;
    let title = "Short Rack app in fibers and in threads, 10 connections, `-w 2 -t 5`";
    let mut table = Table::new(title, &["server", "requests/s", "±", "CPU µs a request"]);
    for measured in &all {
        let speed = measured.series(Run::requests_per_second);
        let cells = [
            format!("{:.0}", speed.median()),
            format!("{:.0} %", speed.spread() * 100.0),
            format!("{:.1}", measured.median(Run::cpu_us)),
        ];
        table.row(measured.name, &cells);
    }
    for system in systems(&all) {
        let of = |name: &str| median_of(&all, &format!("{name}{system}"), Run::requests_per_second);
        let against = at_least(ratio(of(FIBERS.name), of(THREADS.name)), 0.95);
        table.target(&format!("fibers{system}: requests/s ≥ 0.95 × threads"), against);
    }
    Ok(table.text())
}

/// The suffixes of names that identify the systems, each once.
fn systems(all: &[ServerRuns]) -> Vec<&'static str> {
    all.iter().filter_map(|measured| measured.name.strip_prefix(FIBERS.name)).collect()
}

fn p99_ms(run: &Run) -> f64 {
    run.total("/latency/p99_ns") / 1e6
}

/// Starts each server once a round, and loads it at `paths`.
fn rounds(
    arena: &Arena<'_>,
    servers: &[&Contender],
    scenario: Scenario<'_>,
    paths: &[&str],
) -> Result<Vec<ServerRuns>, String> {
    let mut all: Vec<_> =
        servers.iter().map(|one| ServerRuns { name: one.name, runs: Vec::new() }).collect();
    for _ in 0..arena.context.rounds {
        for (contender, measured) in servers.iter().zip(&mut all) {
            if let Some(running) = arena.start(contender, scenario)? {
                measured.runs.push(load(&arena.context.root, &running, paths, scenario.options)?);
            }
        }
    }
    all.retain(|measured| !measured.runs.is_empty());
    Ok(all)
}
