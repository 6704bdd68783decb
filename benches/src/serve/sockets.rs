//! WebSockets: echoed messages, and a channel of ActionCable with ten thousand clients.

use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

use super::arena::{Arena, Scenario};
use super::contender::Contender;
use super::load::begin_at;
use super::running::RunningServer;
use super::server::App;
use crate::context::BenchContext;
use crate::measure::Series;
use crate::process::memory_mb;
use crate::table::{Table, at_least, at_most, ratio};

/// The number of clients of the channel.
const CLIENTS: u64 = 10_000;
/// The number of broadcasts.
const BROADCASTS: u64 = 5;
/// The time limit for connecting and for the broadcasts together.
const CABLE_SECONDS: &str = "90";
/// The interval between two readings of memory.
const LOOK: Duration = Duration::from_millis(250);

/// Measures messages that are echoed to 100 clients.
pub(crate) fn echo(context: &BenchContext) -> Result<String, String> {
    let arena = Arena::new(context)?;
    let scenario = Scenario { app: App::Sockets, ..Scenario::rack("/", &[]) };
    let title = "WebSocket: 100 clients, 32 bytes that come back, `-w 2 -t 2`";
    let columns = ["server", "messages/s", "±", "p99 ms", "Jain", "lost"];
    let mut table = Table::new(title, &columns);
    let servers: Vec<_> = arena.servers(scenario.app).collect();
    let mut all: Vec<_> = servers.iter().map(|one| (one.name, Vec::new())).collect();
    for _ in 0..context.rounds {
        for (contender, (_, reports)) in servers.iter().zip(&mut all) {
            if let Some(running) = arena.start(contender, scenario)? {
                reports.push(run(
                    &arena,
                    &running,
                    "/",
                    &["-c", "100", "-d", &arena.seconds(1.0)],
                )?);
            }
        }
    }
    all.retain(|(_, reports)| !reports.is_empty());
    let series = |name, reports: &[Value], pointer| {
        Series::new(name, reports.iter().map(|report| number(report, pointer)).collect())
    };
    let rate = "/total/requests_per_second";
    for (name, reports) in &all {
        let median = |pointer| series(name, reports, pointer).median();
        let cells = [
            format!("{:.0}", median(rate)),
            format!("{:.0} %", series(name, reports, rate).spread() * 100.0),
            format!("{:.2}", median("/total/latency/p99_ns") / 1e6),
            format!("{:.4}", median("/total/fairness/index")),
            format!("{:.0}", median("/total/failed")),
        ];
        table.row(name, &cells);
    }
    let of = |name| {
        let found = all.iter().find(|(own, _)| *own == name);
        found.map(|(own, reports)| series(own, reports, rate).median())
    };
    table.target("messages/s ≥ iodine's", at_least(ratio(of("thruway"), of("iodine")), 1.0));
    Ok(table.text())
}

/// Measures the memory of clients that wait, and the time until all of them have a broadcast.
pub(crate) fn cable(context: &BenchContext) -> Result<String, String> {
    let arena = Arena::new(context)?;
    let title = "ActionCable: 10,000 clients of one channel, five broadcasts, `-w 1 -t 2`";
    let columns = [
        "server",
        "MB without",
        "MB with",
        "MB more",
        "clients",
        "to all, median ms",
        "slowest ms",
    ];
    let mut table = Table::new(title, &columns);
    let (mut more, mut slowest) = (None, None);
    for contender in arena.servers(App::Cable) {
        let Some(room) = fill(&arena, contender)? else { continue };
        let milliseconds = |pointer| number(&room.report, pointer) / 1e6;
        let clients = number(&room.report, "/total/connects");
        let is_whole = number(&room.report, "/broadcasts/whole") >= BROADCASTS as f64;
        let times = ["/broadcasts/latency/p50_ns", "/broadcasts/latency/max_ns"].map(milliseconds);
        let shown = times.map(|time| if is_whole { format!("{time:.0}") } else { "–".to_owned() });
        let [without, with] = room.memory_mb;
        let cells = [without, with, with - without, clients].map(|number| format!("{number:.0}"));
        table.row(contender.name, &[&cells[..], &shown].concat());
        if contender.is_ours() && is_whole {
            (more, slowest) = (Some(with - without), Some(times[1]));
        }
    }
    table.target("MB more ≤ 150", at_most(more, 150.0));
    table.target("a broadcast reaches all in ≤ 1,000 ms", at_most(slowest, 1000.0));
    Ok(table.text())
}

/// A channel with all of its clients.
struct Room {
    memory_mb: [f64; 2],
    report: Value,
}

fn fill(arena: &Arena<'_>, contender: &Contender) -> Result<Option<Room>, String> {
    let scenario = Scenario { app: App::Cable, workers: 1, ..Scenario::rack("/", &[]) };
    let Some(running) = arena.start(contender, scenario)? else { return Ok(None) };
    let without = memory_mb(&running.processes());
    let channel = r#""identifier":"{\"channel\":\"Chat::Room\"}""#;
    let subscribe = format!(r#"{{"command":"subscribe",{channel}}}"#);
    let said = r#""data":"{\"action\":\"speak\",\"text\":\"{id}\"}""#;
    let message = format!(r#"{{"command":"message",{channel},{said}}}"#);
    let (clients, broadcasts) = (CLIENTS.to_string(), BROADCASTS.to_string());
    let options = [
        ["-c", &clients],
        ["-n", &broadcasts],
        ["-d", CABLE_SECONDS],
        ["--timeout", CABLE_SECONDS],
        ["--broadcast", "--rate=0.5"],
        ["-H", "Sec-WebSocket-Protocol: actioncable-v1-json"],
        ["--confirmed", "confirm_subscription"],
        ["--subscribe", &subscribe],
        ["--message", &message],
    ];
    let url = running.url("/cable").replacen("http", "ws", 1);
    let mut loading = begin_at(&arena.context.root, &[url], options.as_flattened())?;
    let mut with = without;
    while loading.is_under_way() {
        sleep(LOOK);
        with = memory_mb(&running.processes()).max(with);
    }
    let report = loading.end()?;
    Ok(Some(Room { memory_mb: [without, with], report }))
}

/// Runs `thruway load` over WebSocket.
fn run(
    arena: &Arena<'_>,
    server: &RunningServer,
    path: &str,
    options: &[&str],
) -> Result<Value, String> {
    let url = server.url(path).replacen("http", "ws", 1);
    begin_at(&arena.context.root, &[url], options)?.end()
}

fn number(report: &Value, pointer: &str) -> f64 {
    report.pointer(pointer).and_then(Value::as_f64).unwrap_or(0.0)
}
