//! The system calls that the command makes before its own work.

use std::process::Command;

/// The calls of `thruway ARGUMENT` after the dynamic loader has done its work. The first call is made by Rust's
/// runtime, for the three streams.
fn calls_after_the_loader(argument: &str) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("calls");
    let mut strace = Command::new("strace");
    strace.arg("-qq").arg("-o").arg(&log).arg(env!("CARGO_BIN_EXE_thruway")).arg(argument);
    let output = strace.env_remove("RUST_BACKTRACE").output().expect("scripts/setup installs it");
    assert!(output.status.success(), "{output:?}");
    let log = std::fs::read_to_string(log).expect("it is written");
    let own = log.lines().skip_while(|line| !line.starts_with("poll("));
    // The C library reads /proc/self/maps, whose length varies, and decides when to grow the heap.
    let is_library = |line: &&str| line.contains(", 1024) = ") || line.starts_with("brk(");
    own.filter(|line| !is_library(line)).map(str::to_owned).collect()
}

#[test]
fn the_version_is_said_after_a_few_calls() {
    let calls = calls_after_the_loader("--version");
    // Other C libraries make a few more than the 22 of Debian 12.
    assert!(calls.len() <= 25, "{calls:#?}");
    // The calls of the command itself come after Rust's runtime has set up its handlers of signals.
    let runtime = calls.iter().rposition(|call| call.starts_with("rt_sigaction(SIGBUS, {"));
    let own = &calls[runtime.expect("Rust's runtime handles SIGBUS") + 1..];
    let names: Vec<_> = own.iter().filter_map(|call| call.split('(').next()).collect();
    assert_eq!(names, ["ioctl", "write", "sigaltstack", "munmap", "exit_group"], "{own:#?}");
}
