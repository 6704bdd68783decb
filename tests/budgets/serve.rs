//! The system calls of a server for each request:
//!
//! - for a short Rack application, one read and one write;
//! - for a file, its look-ups, and no copy of its bytes;
//! - without requests, none.

#[expect(dead_code, reason = "its other tests need more of it")]
#[path = "../it/http.rs"]
mod http;

use std::collections::BTreeMap;
use std::fs;
use std::net::Shutdown;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use http::Server;

/// Calls by name, as `strace -c` counts them.
type Calls = BTreeMap<String, i64>;

/// The number of requests by which the second run exceeds the first.
const MORE: i64 = 200;

/// Calls that wait for events. Their number depends on whether the client or the server is faster. With `ppoll`, the
/// standby checks now and then whether a call of the application is in progress.
const LOOKS: [&str; 3] = ["epoll_pwait", "epoll_pwait2", "ppoll"];

/// The most such calls for a request: a call before the request, and a call afterwards, which finds no event.
const LOOKS_MAX: i64 = 2;

/// Calls that do not count: for memory, which Ruby's collector allocates at any time, and those by which a debug build
/// checks each descriptor before closing it.
const LEFT_OUT: [&str; 7] = ["brk", "fcntl", "madvise", "mmap", "mprotect", "munmap", "total"];

/// The number of other calls, such as those for locks and clocks, below which no request can be their cause.
const ONCE: i64 = MORE / 2;

/// The number of attempts. On a slow machine a traced call of the application may take long, and then the standby is
/// woken. The calls of each request occur in every attempt.
const ATTEMPTS: usize = 5;

#[test]
fn a_request_of_a_short_application_is_one_read_and_one_write() {
    let application = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/rack_hello");
    let options = ["-w", "0", "-t", "1", "-e", "production"];
    assert_costs(Path::new(application), &options, "/", &[("recvfrom", 1), ("sendto", 1)]);
}

#[test]
fn metrics_cost_a_request_no_call() {
    let application = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/rack_hello");
    let options = ["-w", "0", "-t", "1", "-e", "production", "--metrics", "tcp://127.0.0.1:0"];
    assert_costs(Path::new(application), &options, "/", &[("recvfrom", 1), ("sendto", 1)]);
}

#[test]
fn a_file_is_opened_once_beneath_its_folder_and_sent_by_the_kernel() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("a.txt"), [b'x'; 10_240]).expect("it is written");
    let calls = [
        ("recvfrom", 1),
        ("openat2", 1),
        ("fstat", 1),
        ("sendto", 1),
        ("sendfile", 1),
        ("close", 1),
    ];
    assert_costs(folder.path(), &["-w", "1"], "/a.txt", &calls);
}

#[test]
fn a_system_without_openat2_is_asked_for_it_once() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("sub")).expect("it is made");
    fs::write(folder.path().join("sub/a.txt"), "a").expect("it is written");
    symlink("../sub/a.txt", folder.path().join("sub/link.txt")).expect("it is made");
    let old_kernel = ["-e", "inject=openat2:error=ENOSYS"];
    let calls = calls_with(&old_kernel, folder.path(), &["-w", "1"], "/sub/link.txt", 10);
    assert_eq!(calls.get("openat2"), Some(&1), "{calls:?}");
}

#[test]
fn a_system_without_fine_waits_costs_no_processor() {
    let application = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/rack_hello");
    let site = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/static_site");
    let old_kernel = ["-e", "inject=epoll_pwait2:error=ENOSYS"];
    for (target, options) in
        [(application, &["-w", "2", "-t", "2", "-e", "production"][..]), (site, &["-w", "1"])]
    {
        let calls = calls_with(&old_kernel, Path::new(target), options, "/", 10);
        let waits: i64 = LOOKS.iter().filter_map(|name| calls.get(*name)).sum();
        assert!(waits < 1000, "{waits} waits for 10 requests of {target}");
    }
}

#[test]
fn an_idle_server_is_never_woken() {
    let application = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/rack_hello");
    let site = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/static_site");
    for (target, options) in [
        (application, &["-t", "3", "-e", "production"][..]),
        (application, &["-w", "2", "-t", "2", "-e", "production"]),
        (site, &["-w", "2"]),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_thruway"));
        let server = Server::start(command.args(["serve", target, "-p", "0"]).args(options));
        assert_eq!(server.get("/", "").status, 200);
        // After the last request, the server comes to rest: at some time no thread wakes up for a second.
        let is_at_rest = || {
            let before = wake_ups(server.pid());
            std::thread::sleep(Duration::from_secs(1));
            before == wake_ups(server.pid())
        };
        assert!((0..20).any(|_| is_at_rest()), "{target} with {options:?} never sleeps");
    }
}

/// The number of times that the threads of a process and of its children have waited (voluntary context switches).
fn wake_ups(pid: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let of_thread = |thread: fs::DirEntry| {
        let read = |name| fs::read_to_string(thread.path().join(name)).expect("it is readable");
        let status = read("status");
        let waits = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        let waits: u64 = waits.expect("it is there").trim().parse().expect("it is a number");
        let children = read("children");
        let children = children.split_whitespace().map(|child| child.parse().expect("a number"));
        waits + children.map(wake_ups).sum::<u64>()
    };
    threads.flatten().map(of_thread).sum()
}

/// Asserts that each request makes the `golden` calls and no others.
fn assert_costs(target: &Path, options: &[&str], path: &str, golden: &[(&str, i64)]) {
    let attempts = (0..ATTEMPTS).map(|_| costs(target, options, path, golden));
    let others: Vec<_> = attempts.map_while(Result::err).collect();
    assert!(others.len() < ATTEMPTS, "{others:#?}");
}

/// Checks that each request makes these calls and no others; the error lists the calls of a request.
fn costs(
    target: &Path,
    options: &[&str],
    path: &str,
    golden: &[(&str, i64)],
) -> Result<(), String> {
    let before = calls(target, options, path, MORE);
    let mut more = calls(target, options, path, 2 * MORE);
    before.into_iter().for_each(|(name, count)| *more.entry(name).or_default() -= count);
    more.retain(|name, count| *count != 0 && !LEFT_OUT.contains(&name.as_str()));
    let looks: i64 = LOOKS.iter().filter_map(|name| more.remove(*name)).sum();
    let counts = golden.iter().map(|(name, _)| (*name, more.remove(*name)));
    let counts: Vec<_> = counts.collect();
    let is_golden =
        golden.iter().zip(&counts).all(|(golden, count)| count.1 == Some(golden.1 * MORE));
    let is_right =
        is_golden && looks <= LOOKS_MAX * MORE + ONCE && more.values().sum::<i64>() < ONCE;
    if is_right { Ok(()) } else { Err(format!("{counts:?}, {looks} looks, besides: {more:?}")) }
}

/// The calls of a server that answers `requests` requests, one after another.
fn calls(target: &Path, options: &[&str], path: &str, requests: i64) -> Calls {
    calls_with(&[], target, options, path, requests)
}

/// Like [`calls`], with more options for strace.
fn calls_with(
    strace_options: &[&str],
    target: &Path,
    options: &[&str],
    path: &str,
    requests: i64,
) -> Calls {
    let folder = tempfile::tempdir().expect("a folder");
    let table = folder.path().join("calls");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-c", "-o"]).arg(&table).args(strace_options);
    strace.args([env!("CARGO_BIN_EXE_thruway"), "serve"]).arg(target).args(options);
    let server = Server::start(strace.args(["-p", "0"]));
    let mut client = server.connect();
    for _ in 0..requests {
        assert_eq!(client.request("GET", path, "").status, 200);
    }
    // The server closes its end after all other work.
    client.socket().shutdown(Shutdown::Write).expect("the connection is open");
    assert!(client.is_closed());
    end_traced(server.pid());
    let _ = server.wait();
    fs::read_to_string(table).expect("strace counted").lines().filter_map(row).collect()
}

/// Ends the server that `strace` has started, and so ends strace.
fn end_traced(strace: u32) {
    let children = fs::read_to_string(format!("/proc/{strace}/task/{strace}/children"));
    let children = children.expect("strace runs");
    let server = children.split_whitespace().next().expect("it has started the server");
    let killed = Command::new("kill").args(["-TERM", server]).status();
    assert!(killed.expect("kill is installed").success());
}

/// Parses a line of `strace -c`: `% time, seconds, usecs/call, calls, [errors,] syscall`.
fn row(line: &str) -> Option<(String, i64)> {
    let cells: Vec<_> = line.split_whitespace().collect();
    Some(((*cells.last()?).to_owned(), cells.get(3)?.parse().ok()?))
}
