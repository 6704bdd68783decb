//! What a noted call costs the traced program: no stop for the tracer, whoever notes it.

use std::path::Path;
use std::process::Command;

/// A program that makes `count` calls beside what its start needs.
fn program(count: u64) -> [String; 3] {
    let script = format!("i=0; while [ $i -lt {count} ]; do [ -e /none ]; i=$((i+1)); done");
    ["sh".into(), "-c".into(), script]
}

/// How often the tracer was woken, how many calls it noted itself, and how many calls there were.
fn cost(backend: &str, count: u64) -> [u64; 3] {
    let folder = tempfile::tempdir().expect("a folder");
    let recording = folder.path().join("recording");
    let mut trace = Command::new(env!("CARGO_BIN_EXE_thruway"));
    trace.args(["trace", "--backend", backend, "-o"]).arg(&recording).arg("--");
    let output = trace.args(program(count)).output().expect("thruway starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    sums(&recording)
}

fn sums(recording: &Path) -> [u64; 3] {
    let mut trace = Command::new(env!("CARGO_BIN_EXE_thruway"));
    let output = trace.args(["trace", "--json", "--from"]).arg(recording).output();
    let output = output.expect("thruway starts").stdout;
    summary(&output)
}

fn summary(report: &[u8]) -> [u64; 3] {
    let first = report.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let sums: serde_json::Value = serde_json::from_slice(first).expect("a line is JSON");
    ["stops", "traced", "calls"].map(|sum| sums[sum].as_u64().expect("a count"))
}

/// What so many calls more cost.
fn more(backend: &str, count: u64) -> [u64; 3] {
    let (few, many) = (cost(backend, 100), cost(backend, 100 + count));
    [0, 1, 2].map(|index| many[index] - few[index])
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_call_that_the_program_notes_stops_nobody() {
    // Few enough for a ring that nobody reads meanwhile.
    assert_eq!(more("stub", 1000), [0, 0, 1000]);
}

#[test]
fn a_call_that_the_tracer_notes_stops_twice() {
    assert_eq!(more("ptrace", 1000), [2000, 1000, 1000]);
}

/// How often the tracer was woken for a shell that starts `sh` so many times.
#[cfg(target_arch = "x86_64")]
fn stops_of_starts(count: u64) -> u64 {
    let script = format!("i=0; while [ $i -lt {count} ]; do sh -c 'cd /'; i=$((i+1)); done");
    let mut trace = Command::new(env!("CARGO_BIN_EXE_thruway"));
    let output = trace.args(["trace", "--json", "--", "sh", "-c", &script]).output();
    summary(&output.expect("thruway starts").stdout)[0]
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_program_that_ran_before_stops_once_for_each_file_of_code() {
    // The fork, its child, the program, its loader's first call, its library's, its end, and the
    // signal that tells of it; one more elsewhere perhaps. Each site by itself comes to ten.
    const STOPS_A_START_MAX: u64 = 8;
    let more = stops_of_starts(30) - stops_of_starts(10);
    assert!(more <= 20 * STOPS_A_START_MAX, "{more}");
}
