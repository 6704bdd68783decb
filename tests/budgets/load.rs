//! The system calls of a client for each request: one to send and one to read, and none for memory.

use std::collections::BTreeMap;
use std::process::Command;

use thruway_testing::http_server::{HELLO, HttpServer};

/// Calls by name, as `strace -c` counts them.
type Calls = BTreeMap<String, i64>;

/// The number of requests by which the second run exceeds the first.
const MORE: i64 = 1000;

/// The number of calls for memory below which no request can be their cause: a histogram grows, rarely, when a request
/// is slower than any before.
const ONCE: i64 = MORE / 50;

#[test]
fn a_request_is_one_send_and_one_read() {
    let server = HttpServer::answering(HELLO);
    let before = calls(&server, &format!("-n{MORE}"));
    let after = calls(&server, &format!("-n{}", 2 * MORE));
    let more = |name: &str| after.get(name).unwrap_or(&0) - before.get(name).unwrap_or(&0);
    for (name, golden) in [("sendto", MORE), ("recvfrom", MORE)] {
        assert_eq!(more(name), golden, "{name}: {before:?} {after:?}");
    }
    for name in ["connect", "epoll_ctl"] {
        assert_eq!(more(name), 0, "{name}: {before:?} {after:?}");
    }
    let memory = ["mmap", "munmap", "brk", "mremap"].map(more).iter().sum::<i64>();
    assert!(memory < ONCE, "memory is asked for again and again: {before:?} {after:?}");
}

/// The calls of `thruway load` over one connection.
fn calls(server: &HttpServer, requests: &str) -> Calls {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-c", env!("CARGO_BIN_EXE_thruway"), "load", &server.url("/")]);
    let output = strace.args(["-c1", requests]).output().expect("scripts/setup installs strace");
    let table = String::from_utf8(output.stderr).expect("it is text");
    table.lines().filter_map(row).collect()
}

/// Parses a line of `strace -c`: `% time, seconds, usecs/call, calls, [errors,] syscall`.
fn row(line: &str) -> Option<(String, i64)> {
    let cells: Vec<_> = line.split_whitespace().collect();
    Some(((*cells.last()?).to_owned(), cells.get(3)?.parse().ok()?))
}
