//! Ten thousand streams at once, each with an event a second that is due at a known time.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::time::{ClockId, clock_gettime};

use super::arena::{Arena, Scenario};
use super::contender::Contender;
use super::running::RunningServer;
use super::server::{App, Program, Server};
use crate::context::BenchContext;
use crate::process::memory_mb;
use crate::table::{Table, at_most, ratio};

const STREAMS: usize = 10_000;
/// Streams that are begun together. A server's backlog may be shorter than all of them.
const BATCH: usize = 250;
/// How long all streams may take to begin.
const BEGIN_MAX: Duration = Duration::from_secs(60);
/// How long the server may take until nothing is left of the streams.
const END_MAX: Duration = Duration::from_secs(20);
const READY_MAX: usize = 1024;

static FIBERS: Server = Server::for_rack(
    "thruway, `--fibers`",
    Program::Ours,
    "serve {app} -b tcp://127.0.0.1:{port} -w {workers} -t {threads} -e production --fibers 10000",
    "",
);

/// The streams of one server: their number, how late their events came in microseconds, and the server's memory.
struct Outcome {
    begun: usize,
    lateness_us: Vec<u64>,
    memory_mb: f64,
    /// Descriptors and threads that the server has more than before the streams.
    left: usize,
}

/// Measures the delays of events, the memory of the streams, and the memory that remains after their end.
pub(crate) fn run(context: &BenchContext) -> Result<String, String> {
    let arena = Arena::new(context)?;
    let ours = Contender::in_all_systems(context, &[&FIBERS]);
    let peers =
        arena.servers(App::Waiting).filter(|contender| contender.name.starts_with("Falcon"));
    let servers: Vec<_> = ours.iter().chain(peers).collect();
    let title = "10,000 streams, each with an event a second, `-w 2 -t 5`";
    let columns = ["server", "begun", "events/s", "late p50 ms", "late p99 ms", "MB more", "left"];
    let mut table = Table::new(title, &columns);
    let seconds = Duration::from_secs_f64(context.seconds * 2.0);
    let mut outcomes = Vec::new();
    for contender in servers {
        let scenario = Scenario { app: App::Waiting, threads: 5, ..Scenario::rack("/", &[]) };
        let Some(running) = arena.start(contender, scenario)? else { continue };
        let outcome = stream(&running, seconds).map_err(|error| error.to_string())?;
        let late = [0.5, 0.99].map(|share| outcome.late_ms(share));
        let cells = [
            outcome.begun.to_string(),
            format!("{:.0}", outcome.lateness_us.len() as f64 / seconds.as_secs_f64()),
            format!("{:.1}", late[0]),
            format!("{:.1}", late[1]),
            format!("{:.0}", outcome.memory_mb),
            outcome.left.to_string(),
        ];
        table.row(contender.name, &cells);
        outcomes.push((contender.name, outcome));
    }
    for (name, ours) in &outcomes {
        let Some(system) = name.strip_prefix(FIBERS.name) else { continue };
        let falcon = outcomes.iter().find(|(name, _)| *name == format!("Falcon{system}"));
        let late = (ours.begun == STREAMS).then(|| ours.late_ms(0.99));
        table.target(&format!("fibers{system}: p99 of lateness ≤ 50 ms"), at_most(late, 50.0));
        let memory = ratio(Some(ours.memory_mb), falcon.map(|(_, falcon)| falcon.memory_mb));
        table.target(&format!("fibers{system}: memory ≤ Falcon's"), at_most(memory, 1.0));
        let left = at_most(Some(ours.left as f64), 0.0);
        table.target(&format!("fibers{system}: threads and descriptors left"), left);
    }
    Ok(table.text())
}

impl Outcome {
    fn late_ms(&self, share: f64) -> f64 {
        let mut sorted = self.lateness_us.clone();
        sorted.sort_unstable();
        let at = (sorted.len() as f64 * share) as usize;
        sorted.get(at.min(sorted.len().saturating_sub(1))).map_or(f64::NAN, |us| *us as f64 / 1e3)
    }
}

fn stream(server: &RunningServer, duration: Duration) -> io::Result<Outcome> {
    let processes = server.processes();
    let (memory_before, used_before) = (memory_mb(&processes), used(&processes));
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut streams: Vec<Stream> = Vec::new();
    let mut begun = HashSet::new();
    let deadline = Instant::now() + BEGIN_MAX;
    while begun.len() < STREAMS && Instant::now() < deadline {
        while streams.len() < STREAMS && streams.len() < begun.len() + BATCH {
            let stream = Stream::begin(server.port)?;
            let data = epoll::EventData::new_u64(streams.len() as u64);
            epoll::add(&poll, &stream.socket, data, epoll::EventFlags::IN)?;
            streams.push(stream);
        }
        for index in wait(&poll)? {
            streams[index].read();
            begun.insert(index);
        }
    }
    let mut lateness_us = Vec::new();
    let end = Instant::now() + duration;
    streams.iter_mut().for_each(|stream| stream.lateness_us.clear());
    while Instant::now() < end {
        for index in wait(&poll)? {
            streams[index].read();
        }
    }
    let memory_mb = memory_mb(&processes) - memory_before;
    streams.iter_mut().for_each(|stream| lateness_us.append(&mut stream.lateness_us));
    drop(streams);
    let deadline = Instant::now() + END_MAX;
    while used(&processes) > used_before && Instant::now() < deadline {
        sleep(Duration::from_millis(100));
    }
    let left = used(&processes).saturating_sub(used_before);
    Ok(Outcome { begun: begun.len(), lateness_us, memory_mb, left })
}

/// The indexes of the streams with new data.
fn wait(poll: &impl std::os::fd::AsFd) -> io::Result<Vec<usize>> {
    let mut ready = Vec::with_capacity(READY_MAX);
    let timeout = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    epoll::wait(poll, rustix::buffer::spare_capacity(&mut ready), Some(&timeout))?;
    Ok(ready.iter().map(|event| event.data.u64() as usize).collect())
}

/// The number of descriptors and threads of the processes.
fn used(processes: &[u32]) -> usize {
    let count = |folder: String| fs::read_dir(folder).map_or(0, Iterator::count);
    let of_process =
        |process| count(format!("/proc/{process}/fd")) + count(format!("/proc/{process}/task"));
    processes.iter().map(of_process).sum()
}

/// A client's end of a stream.
struct Stream {
    socket: TcpStream,
    /// The beginning of an event whose end has not come.
    text: String,
    lateness_us: Vec<u64>,
}

impl Stream {
    fn begin(port: u16) -> io::Result<Self> {
        let mut socket = TcpStream::connect(("127.0.0.1", port))?;
        socket.write_all(b"GET /ticks HTTP/1.1\r\nHost: bench\r\n\r\n")?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, text: String::new(), lateness_us: Vec::new() })
    }

    /// Reads the bytes that have arrived, and records the delays of their events.
    fn read(&mut self) {
        let mut buffer = [0; 4096];
        // A stream that has ended has no more events, which the table shows.
        let Ok(length) = self.socket.read(&mut buffer) else { return };
        self.text.push_str(&String::from_utf8_lossy(&buffer[..length]));
        let now_us = monotonic_us();
        while let Some((event, rest)) = self.text.split_once("\n\n") {
            let due = event.rsplit_once("data: ").and_then(|(_, due)| due.parse::<u64>().ok());
            self.lateness_us.extend(due.map(|due_us| now_us.saturating_sub(due_us)));
            self.text = rest.to_owned();
        }
    }
}

/// The clock by which the application says when an event is due.
fn monotonic_us() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000 + now.tv_nsec.unsigned_abs() / 1_000
}
