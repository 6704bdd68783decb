//! Servers under clients that break off, that close their half of a connection, or that send half of a request. Workers
//! are killed in the meantime. Every byte that arrives is right, and no descriptor leaks.
//!
//! `THRUWAY_SOAK_SECONDS` sets the duration (`cargo x soak serve` sets a minute).

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::http::Server;
use crate::{eventually, thruway};

/// Seconds of a run in CI.
const SECONDS: u64 = 3;

/// Clients at a time.
const CLIENTS: u64 = 12;

/// The time between two kills of workers.
const KILL_PERIOD: Duration = Duration::from_millis(700);

/// The time for which a client waits for a response.
const PATIENCE: Duration = Duration::from_secs(20);

/// The lengths of bodies that take one packet, several turns, and many turns.
const LENGTHS: [usize; 3] = [100, 300_000, 5_000_000];

const APPLICATION: &str = r#"
ALL = File.binread(File.join(__dir__, "files/5000000"))
FILE = Struct.new(:to_path) { def each = yield(File.binread(to_path)) }

run lambda { |env|
  name = File.basename(env["PATH_INFO"])
  file = env["PATH_INFO"].start_with?("/file")
  body = file ? FILE.new(File.join(__dir__, "files", name)) : [ALL.byteslice(0, name.to_i)]
  [200, { "content-length" => name }, body]
}
"#;

#[test]
fn a_folder_is_served_without_a_wrong_byte_or_a_lost_descriptor() {
    let folder = folder();
    let files = folder.path().join("files");
    let server = Server::start(thruway().arg("serve").arg(files).args(["-p", "0", "-w", "2"]));
    let before = descriptors(server.pid());
    let tally = soak(&server, &[""], || {});
    assert_eq!(tally.cut.into_inner(), 0, "every answer that was waited for is whole");
    assert!(tally.whole.into_inner() > 0);
    eventually(|| descriptors(server.pid()) <= before);
}

#[test]
fn an_application_is_served_without_a_wrong_byte_while_workers_are_killed() {
    let folder = folder();
    fs::write(folder.path().join("config.ru"), APPLICATION).expect("it is written");
    let arguments = ["-p", "0", "-w", "2", "-t", "2", "-e", "production"];
    let server = Server::start(thruway().arg("serve").arg(folder.path()).args(arguments));
    eventually(|| workers(server.pid()).len() == 2);
    assert_eq!(server.get("/list/100", "").body, pattern(100));
    let killed = AtomicU64::new(0);
    let tally = soak(&server, &["/list", "/file"], || {
        if let [worker, ..] = workers(server.pid())[..] {
            kill(worker);
            killed.fetch_add(1, Ordering::Relaxed);
        }
    });
    let (cut, killed) = (tally.cut.into_inner(), killed.into_inner());
    assert!(killed > 0 && tally.whole.into_inner() > 0);
    assert!(cut <= killed * CLIENTS, "{cut} answers were cut by {killed} deaths");
    eventually(|| workers(server.pid()).len() == 2 && server.get("/list/100", "").status == 200);
    let fresh = Server::start(thruway().arg("serve").arg(folder.path()).args(arguments));
    eventually(|| workers(fresh.pid()).len() == 2);
    assert_eq!(fresh.get("/list/100", "").status, 200);
    let most = |server: &Server| workers(server.pid()).into_iter().map(descriptors).max();
    eventually(|| most(&server) <= most(&fresh));
    eventually(|| descriptors(server.pid()) == descriptors(fresh.pid()));
    for server in [server, fresh] {
        assert!(server.stop("-TERM").success());
    }
}

/// The outcomes of requests whose responses clients waited for.
#[derive(Default)]
struct Tally {
    whole: AtomicU64,
    /// The connection ended before the answer did.
    cut: AtomicU64,
}

/// Sends clients to the paths for some seconds, and does `harm` now and then.
fn soak(server: &Server, paths: &[&str], mut harm: impl FnMut()) -> Tally {
    let seconds = std::env::var("THRUWAY_SOAK_SECONDS").ok().and_then(|text| text.parse().ok());
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(SECONDS));
    let tally = Tally::default();
    std::thread::scope(|scope| {
        for seed in 1..=CLIENTS {
            let (tally, address) = (&tally, server.address());
            scope.spawn(move || {
                let mut random = Random(seed * 0x9E37_79B9);
                while Instant::now() < end {
                    visit(address, paths, &mut random, tally);
                }
            });
        }
        while Instant::now() + KILL_PERIOD < end {
            std::thread::sleep(KILL_PERIOD);
            harm();
        }
    });
    tally
}

/// Makes a connection with some requests, and ends it in one of four ways.
fn visit(address: &str, paths: &[&str], random: &mut Random, tally: &Tally) {
    let Ok(mut stream) = TcpStream::connect(address) else { return };
    stream.set_read_timeout(Some(PATIENCE)).expect("it is a valid time");
    for _ in 0..random.below(6) {
        let length = LENGTHS[random.below(LENGTHS.len())];
        if ask(&mut stream, paths[random.below(paths.len())], length).is_err() {
            return;
        }
        let is_whole = take(&mut stream, length, usize::MAX);
        let count = if is_whole { &tally.whole } else { &tally.cut };
        count.fetch_add(1, Ordering::Relaxed);
        if !is_whole {
            return;
        }
    }
    let length = LENGTHS[random.below(LENGTHS.len())];
    let path = paths[random.below(paths.len())];
    // The worker may be dead, so a failed write counts as no write.
    match random.below(4) {
        0 => {}
        1 => _ = stream.write_all(b"GET /half HTTP/1.1\r\nHo"),
        2 => {
            let _ = ask(&mut stream, path, length);
            take(&mut stream, length, random.below(length));
        }
        _ => {
            let _ = ask(&mut stream, path, length);
            let _ = stream.shutdown(Shutdown::Write);
            let is_whole = take(&mut stream, length, usize::MAX);
            let count = if is_whole { &tally.whole } else { &tally.cut };
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn ask(stream: &mut TcpStream, path: &str, length: usize) -> std::io::Result<()> {
    stream.write_all(format!("GET {path}/{length} HTTP/1.1\r\nHost: soak\r\n\r\n").as_bytes())
}

/// Reads up to `most` bytes of a response and checks them. Returns whether the response is whole.
fn take(stream: &mut TcpStream, length: usize, most: usize) -> bool {
    let (mut got, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    let mut body = None;
    while got.len() < most && body.is_none_or(|start| got.len() < start + length) {
        match stream.read(&mut buffer) {
            Ok(bytes @ 1..) => got.extend_from_slice(&buffer[..bytes]),
            Ok(0) => break,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                panic!("nothing came for {PATIENCE:?}, after {} bytes", got.len())
            }
            Err(_) => break,
        }
        body =
            body.or_else(|| got.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4));
    }
    assert!(got.starts_with(b"HTTP/1.1 200 ") || got.len() < 13, "{:?}", text(&got));
    let Some(start) = body else { return false };
    let field = format!("content-length: {length}\r\n");
    assert!(text(&got[..start]).to_lowercase().contains(&field), "{}", text(&got[..start]));
    assert!(got.len() <= start + length, "more came than was promised");
    let right = pattern(got.len() - start);
    assert!(got[start..] == right, "a byte of {length} is wrong");
    got.len() == start + length
}

fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(&bytes[..bytes.len().min(400)])
}

/// The first bytes of every body.
fn pattern(length: usize) -> Vec<u8> {
    // The period is not a power of two, so a chunk in the wrong place differs.
    (0..length).map(|at| (at % 251) as u8).collect()
}

/// A folder with a file of each length.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let files = folder.path().join("files");
    fs::create_dir(&files).expect("it is made");
    for length in LENGTHS {
        fs::write(files.join(length.to_string()), pattern(length)).expect("it is written");
    }
    folder
}

/// The workers of a server.
fn workers(server: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{server}/task/{server}/children"));
    let children = children.unwrap_or_default();
    children.split_whitespace().filter_map(|number| number.parse().ok()).collect()
}

/// Counts the descriptors of a process, except those into `/proc`, of which each thread opens one when it begins to
/// work.
fn descriptors(process: u32) -> usize {
    let is_counted = |entry: &fs::DirEntry| {
        fs::read_link(entry.path()).is_ok_and(|place| !place.starts_with("/proc"))
    };
    fs::read_dir(Path::new("/proc").join(process.to_string()).join("fd"))
        .map_or(usize::MAX, |all| all.flatten().filter(is_counted).count())
}

fn kill(process: u32) {
    let killed = Command::new("kill").args(["-KILL", &process.to_string()]).status();
    assert!(killed.expect("kill is installed").success());
}

/// A xorshift generator, which makes the same clients on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit
    }
}
