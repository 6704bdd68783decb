//! What the command itself asks the system before it does anything.

use std::process::Command;

/// The calls of `thruway ARGUMENT` after the dynamic loader has done its work. The first is that of Rust's runtime,
/// which looks at the three streams.
fn calls_after_the_loader(argument: &str) -> usize {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("calls");
    let mut strace = Command::new("strace");
    strace.arg("-qq").arg("-o").arg(&log).arg(env!("CARGO_BIN_EXE_thruway")).arg(argument);
    let output = strace.env_remove("RUST_BACKTRACE").output().expect("scripts/setup installs it");
    assert!(output.status.success(), "{output:?}");
    let log = std::fs::read_to_string(log).expect("it is written");
    let own: Vec<_> = log.lines().skip_while(|line| !line.starts_with("poll(")).collect();
    // The C library reads /proc/self/maps, which is as long as it is, and grows its heap as it sees fit.
    let is_library = |line: &&&str| line.contains(", 1024) = ") || line.starts_with("brk(");
    own.len() - own.iter().filter(is_library).count()
}

#[test]
fn the_version_is_said_after_a_few_calls() {
    // Other C libraries make a few more than the 22 of Debian 12.
    assert!(calls_after_the_loader("--version") <= 25);
}
