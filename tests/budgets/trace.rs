//! The cost of a recorded call in the traced program: no stop for the tracer.

use std::path::Path;
use std::process::Command;

#[cfg(target_arch = "x86_64")]
use thruway_testing::skipped;

/// A program that makes `count` calls beside those of its start.
fn program(count: u64) -> [String; 3] {
    let script = format!("i=0; while [ $i -lt {count} ]; do [ -e /none ]; i=$((i+1)); done");
    ["sh".into(), "-c".into(), script]
}

/// The numbers of wake-ups of the tracer, of calls that the tracer recorded itself, and of all calls.
fn cost(backend: &str, count: u64) -> [u64; 3] {
    cost_of(backend, &program(count))
}

fn cost_of(backend: &str, command: &[String]) -> [u64; 3] {
    let folder = tempfile::tempdir().expect("a folder");
    let recording = folder.path().join("recording");
    let mut trace = Command::new(env!("CARGO_BIN_EXE_thruway"));
    trace.args(["trace", "--backend", backend, "-o"]).arg(&recording).arg("--");
    let output = trace.args(command).output().expect("thruway starts");
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

/// Returns the cost of `count` additional calls.
fn more(backend: &str, count: u64) -> [u64; 3] {
    let (few, many) = (cost(backend, 100), cost(backend, 100 + count));
    [0, 1, 2].map(|index| many[index] - few[index])
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_call_that_the_program_notes_stops_no_thread() {
    // The calls fit into a ring, which nobody reads meanwhile.
    assert_eq!(more("stub", 1000), [0, 0, 1000]);
}

/// As `find`, `du` and `grep -r` duplicate a descriptor for each folder, by fcntl; other commands of fcntl are not
/// recorded.
#[test]
#[cfg(target_arch = "x86_64")]
fn a_duplicate_of_a_descriptor_stops_nothing() {
    let duplicates = |count: u64| {
        let script = format!(
            "import fcntl, os\nfor i in range({count}):\n  fcntl.fcntl(0, fcntl.F_GETFL)\n  \
             os.close(fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3))"
        );
        let command = ["python3".into(), "-S".into(), "-c".into(), script];
        let folder = tempfile::tempdir().expect("a folder");
        let recording = folder.path().join("recording");
        let mut trace = Command::new(env!("CARGO_BIN_EXE_thruway"));
        trace.args(["trace", "--backend", "stub", "-o"]).arg(&recording).arg("--").args(command);
        let output = trace.stdin(std::process::Stdio::null()).output().expect("thruway starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = std::fs::read_to_string(&recording).expect("it is there");
        (sums(&recording), text.matches("\"call\":\"fcntl\"").count())
    };
    let ((few, before), (many, after)) = (duplicates(10), duplicates(1010));
    assert_eq!([0, 1, 2].map(|index| many[index] - few[index]), [0, 0, 0]);
    assert_eq!(after - before, 1000);
}

#[test]
fn a_call_that_the_tracer_notes_stops_twice() {
    assert_eq!(more("ptrace", 1000), [2000, 1000, 1000]);
}

/// Returns the number of wake-ups of the tracer for a shell that starts `sh` `count` times.
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
    // Stops for the fork, the child, the program, the first call of its loader, that of its library, its end and
    // SIGCHLD; perhaps one more elsewhere. With a stop for each site, there would be ten.
    const STOPS_A_START_MAX: u64 = 8;
    let more = stops_of_starts(30) - stops_of_starts(10);
    assert!(more <= 20 * STOPS_A_START_MAX, "{more}");
}

/// Its first argument is the number of threads, its second the number of rounds of three calls that each makes. A
/// thread makes the first call of all, so no site has run before.
#[cfg(target_arch = "x86_64")]
const THREADS: &str = r#"
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
static long rounds;
static void *ask(void *unused) {
  struct stat status;
  for (long i = 0; i < rounds; i++) { stat("/none", &status); access("/none", 0); open("/none", O_RDONLY); }
  return unused;
}
int main(int count, char **arguments) {
  rounds = atol(arguments[2]);
  for (long i = atol(arguments[1]); i > 0; i--) {
    pthread_t thread;
    pthread_create(&thread, 0, ask, 0);
    pthread_join(thread, 0);
  }
  return 0;
}
"#;

#[test]
#[cfg(target_arch = "x86_64")]
fn a_thread_stops_three_times_and_its_calls_never() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = folder.path().join("threads.c");
    std::fs::write(&source, THREADS).expect("it can be written");
    for compiler in ["musl-gcc", "gcc"] {
        for options in [&["-static"][..], &[]] {
            let program = folder.path().join("threads");
            let mut command = Command::new(compiler);
            command.args(options).args(["-O2", "-pthread", "-o"]).arg(&program).arg(&source);
            let Ok(output) = command.output() else {
                skipped(format_args!("{compiler} is not installed"));
                continue;
            };
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let run = |threads: u64, rounds: u64| {
                let words =
                    [program.display().to_string(), threads.to_string(), rounds.to_string()];
                cost_of("stub", &words)
            };
            let (few, many, more_threads) = (run(3, 10), run(3, 510), run(13, 10));
            let beyond = |other: [u64; 3]| [0, 1, 2].map(|index| other[index] - few[index]);
            assert_eq!(beyond(many), [0, 0, 3 * 500 * 3], "{command:?}");
            // The `clone` of its parent, its start and its end.
            assert_eq!(beyond(more_threads), [10 * 3, 0, 10 * 10 * 3], "{command:?}");
        }
    }
}
