//! End-to-end tests of the binary, a file for each verb.
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
mod acme;
#[cfg(target_os = "linux")]
mod browser;
#[cfg(target_os = "linux")]
mod cable;
#[cfg(target_os = "linux")]
mod completion;
#[cfg(target_os = "linux")]
mod doctor;
#[cfg(target_os = "linux")]
mod documents;
#[cfg(target_os = "linux")]
mod examples;
mod expand;
#[cfg(target_os = "linux")]
mod http;
#[cfg(target_os = "linux")]
mod http2;
#[cfg(target_os = "linux")]
mod init;
#[cfg(target_os = "linux")]
mod load;
#[cfg(target_os = "linux")]
mod load_results;
#[cfg(target_os = "linux")]
mod load_tls;
#[cfg(target_os = "linux")]
mod manual;
#[cfg(target_os = "linux")]
mod mount;
#[cfg(target_os = "linux")]
mod names;
#[cfg(not(target_os = "linux"))]
mod of_linux;
#[cfg(target_os = "linux")]
mod pack;
#[cfg(target_os = "linux")]
mod preload;
#[cfg(target_os = "linux")]
mod program;
#[cfg(target_os = "linux")]
mod run;
#[cfg(target_os = "linux")]
mod serve;
#[cfg(target_os = "linux")]
mod setup;
#[cfg(target_os = "linux")]
mod site;
#[cfg(target_os = "linux")]
mod soak;
#[cfg(target_os = "linux")]
mod status_page;
#[cfg(target_os = "linux")]
mod tls;
#[cfg(target_os = "linux")]
mod trace;
#[cfg(target_os = "linux")]
mod voice;
mod which;

use std::process::{Command, Output};

/// The binary under test.
fn thruway() -> Command {
    Command::new(env!("CARGO_BIN_EXE_thruway"))
}

/// Runs the binary with `arguments`, and waits for its end.
fn run(arguments: &[&str]) -> Output {
    thruway().args(arguments).output().expect("the binary starts")
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).expect("stdout is text")
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).expect("stderr is text")
}

/// The time after which a test fails, and never a measure. Each wait is for an event.
#[cfg(target_os = "linux")]
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

/// Waits until `is_so`.
#[cfg(target_os = "linux")]
fn eventually(mut is_so: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    // A check may take long on a busy machine, so many checks are made in any case.
    for checks in 0.. {
        if is_so() {
            return;
        }
        assert!(checks < 3000 || start.elapsed() < PATIENCE, "it never was so");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}
