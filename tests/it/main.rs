//! End to end: the binary as a user starts it, a file a verb.
#![forbid(unsafe_code)]

mod examples;
mod expand;
mod load;
mod manual;
mod which;

use std::process::{Command, Output};

/// The binary under test.
fn thruway() -> Command {
    Command::new(env!("CARGO_BIN_EXE_thruway"))
}

/// Runs it with `arguments` and waits for its end.
fn run(arguments: &[&str]) -> Output {
    thruway().args(arguments).output().expect("the binary starts")
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).expect("stdout is text")
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).expect("stderr is text")
}
