//! `thruway trace`, against strace and against programs of every kind.

mod advice;
mod attached;
mod browser;
mod choice;
mod names;
mod odd;
mod oracle;
mod pack;
mod passing;
mod report;
mod sites;
mod stacks;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::thruway;
use thruway_testing::skipped;

/// A folder for one test, with a few programs for it.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("it can be made");
        std::fs::write(&path, content).expect("it can be written");
        path
    }

    fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("it can be made");
        thruway_testing::write_program(&path, text);
        path
    }

    /// Compiles a C program with these options.
    fn program(&self, name: &str, source: &str, options: &[&str]) -> PathBuf {
        let source = self.file(&format!("{name}.c"), source);
        let program = self.path().join(name);
        let mut gcc = Command::new("gcc");
        gcc.arg("-w").args(options).arg("-o").arg(&program).arg(source);
        assert!(gcc.status().expect("gcc starts").success());
        program
    }
}

/// The back ends of every thruway.
const BACKENDS: [&str; 2] = ["stub", "ptrace"];

/// Whether a program is at hand; says in a line that a test is left out.
fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        skipped(format_args!("{program} is not installed"));
    }
    found
}

/// Runs a command under `thruway trace` with `options` in front of `--`.
fn trace(options: &[&str], command: &mut Command) -> Output {
    let mut traced = thruway();
    traced.arg("trace").args(options).arg("--").arg(command.get_program()).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        traced.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => traced.env(name, value),
            None => traced.env_remove(name),
        };
    }
    traced.output().expect("thruway starts")
}

/// A recording as the lines of `--json`.
fn report(recording: &Path) -> Vec<Value> {
    let output = thruway().args(["trace", "--json", "--from"]).arg(recording).output();
    let output = output.expect("thruway starts");
    let text = String::from_utf8(output.stdout).expect("JSON is text");
    text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

/// The calls of strace's class: how often each was made, and how often it failed with each error.
type Counts = BTreeMap<String, (u64, BTreeMap<i64, u64>)>;

fn counts(report: &[Value]) -> Counts {
    let calls = report.iter().filter(|line| line["group"] == "call");
    let counted = calls.filter(|line| line["is_file_class"] == true);
    let number = |value: &Value| value.as_u64().expect("a count");
    counted
        .map(|line| {
            let name = line["call"].as_str().expect("a name").to_owned();
            let errors: BTreeMap<i64, u64> =
                serde_json::from_value(line["errors"].clone()).map(pairs).expect("pairs");
            assert_eq!(errors.values().sum::<u64>(), number(&line["failed"]), "{name}");
            (name, (number(&line["calls"]), errors))
        })
        .collect()
}

fn pairs(pairs: Vec<(i64, u64)>) -> BTreeMap<i64, u64> {
    pairs.into_iter().collect()
}

/// The events of a recording.
fn events(recording: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(recording).expect("there is a recording");
    let lines = text.lines().skip(1);
    lines.map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}
