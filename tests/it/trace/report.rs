//! Reports of stored recordings, compared with stored reports.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use super::{Place, report, trace};
use crate::{stderr, stdout, thruway};

/// Recordings of a shell that searches commands, of gcc with include folders, and of Ruby with folders on its load
/// path.
const STORED: [&str; 3] = ["shell", "gcc", "ruby"];

fn stored(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/recordings").join(name)
}

fn show(options: &[&str], recording: &Path) -> Output {
    let mut command = thruway();
    command.env_remove("COLUMNS").arg("trace").args(options).arg("--from").arg(recording);
    command.output().expect("thruway starts")
}

/// Compares a text with a stored text, or stores it if `THRUWAY_STORE` is set.
fn assert_stored(name: &str, text: &str) {
    let path = stored(name);
    if std::env::var_os("THRUWAY_STORE").is_some() {
        std::fs::write(&path, text).expect("it can be written");
    }
    let expected = std::fs::read_to_string(&path).expect("it is stored");
    assert!(text == expected, "{name} is different; THRUWAY_STORE=1 stores it\n{text}");
}

#[test]
fn one_screen() {
    for name in STORED {
        let output = show(&[], &stored(&format!("{name}.jsonl")));
        assert!(stdout(&output).lines().count() <= 45);
        assert_stored(&format!("{name}.txt"), stdout(&output));
    }
}

#[test]
fn everything() {
    let output = show(&["--all"], &stored("shell.jsonl"));
    assert_stored("shell-all.txt", stdout(&output));
}

#[test]
fn a_narrow_screen() {
    let mut command = thruway();
    command.env("COLUMNS", "64").args(["trace", "--from"]).arg(stored("gcc.jsonl"));
    let output = command.output().expect("thruway starts");
    assert!(stdout(&output).lines().all(|line| line.chars().count() <= 64), "{}", stdout(&output));
}

#[test]
fn json_begins_with_the_sums() {
    let lines = report(&stored("shell.jsonl"));
    assert_eq!((&lines[0]["calls"], &lines[0]["failed"]), (&Value::from(516), &Value::from(189)));
    assert_eq!(lines[0]["status"], 3);
    let groups: Vec<_> =
        lines.iter().map(|line| line["group"].as_str().expect("a group")).collect();
    for group in ["totals", "advice", "search", "call", "folder", "suffix", "repeated", "program"] {
        assert!(groups.contains(&group), "{group}");
    }
}

#[test]
fn json_of_a_command_is_its_output() {
    let output = trace(&["--json"], &mut Command::new("true"));
    let first = stdout(&output).lines().next().expect("a line");
    let sums: Value = serde_json::from_str(first).expect("a line is JSON");
    assert_eq!((&sums["group"], &sums["status"]), (&Value::from("totals"), &Value::from(0)));
    assert_eq!(stderr(&output), "");
}

#[test]
fn two_recordings_are_compared() {
    let mut command = thruway();
    command.env_remove("COLUMNS").args(["trace", "--compare"]);
    command.args([stored("gcc.jsonl"), stored("ruby.jsonl")]);
    assert_stored("gcc-ruby.txt", stdout(&command.output().expect("thruway starts")));
    let output = command.arg("--json").output().expect("thruway starts");
    let lines: Vec<Value> =
        stdout(&output).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let calls = lines.iter().find(|line| line["what"] == "calls").expect("a sum");
    assert_eq!((&calls["before"], &calls["after"]), (&Value::from(859), &Value::from(213)));
    let gone = lines.iter().find(|line| line["what"] == "/srv/demo/include/1").expect("a folder");
    assert_eq!(gone["after"], 0);
}

#[test]
fn a_budget_is_kept_or_not() {
    let recording = stored("shell.jsonl");
    for (budget, code, told) in [
        ("516", 0, "within budget: 516 calls of 516\n"),
        ("515", 1, "over budget: 516 calls, 1 more than 515\n"),
    ] {
        let output = show(&["--budget", budget], &recording);
        assert_eq!((output.status.code(), stderr(&output)), (Some(code), told));
    }
    let earlier = stored("ruby.jsonl");
    let against = ["--against", earlier.to_str().expect("text")];
    assert_eq!(show(&against, &recording).status.code(), Some(1));
    assert_eq!(show(&against, &earlier).status.code(), Some(0));
    let output = trace(&against, &mut Command::new("true"));
    assert_eq!(output.status.code(), Some(0));
    let output = trace(&["--budget", "1"], &mut Command::new("true"));
    assert_eq!(output.status.code(), Some(1));
    let output = trace(&["--budget", "1"], Command::new("sh").args(["-c", "exit 9"]));
    assert_eq!(output.status.code(), Some(9), "the command's own failure is the news");
}

#[test]
fn trace_events_are_written() {
    let place = Place::new();
    let file = place.path().join("events.json");
    show(&["--perfetto", file.to_str().expect("text")], &stored("shell.jsonl"));
    let text = std::fs::read_to_string(&file).expect("it was written");
    let file: Value = serde_json::from_str(&text).expect("JSON");
    let events = file["traceEvents"].as_array().expect("a list");
    let slices = events.iter().filter(|event| event["ph"] == "X").count();
    // Beside the calls of strace's class, duplicates of descriptors.
    assert!(slices >= 516, "{slices}");
    let jobs = events.iter().filter(|event| event["args"]["name"] == "job").count();
    assert_eq!(jobs, 8, "every program has its name");
}

#[test]
fn other_files_are_refused_with_their_name() {
    let place = Place::new();
    let file = place.file("notes.txt", "hello\n");
    let output = show(&[], &file);
    let expected =
        format!("thruway: {}, line 1: not a recording of thruway trace\n", file.display());
    assert_eq!((stderr(&output), output.status.code()), (expected.as_str(), Some(2)));
    let missing = show(&[], &place.path().join("missing"));
    assert!(stderr(&missing).contains("/missing: No such file or directory (os error 2)"));
}

/// All keys of objects in a value.
fn keys(value: &Value, all: &mut std::collections::BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                // The names of variables are the user's.
                if key != "variables" {
                    keys(value, all);
                }
                all.insert(key.clone());
            }
        }
        Value::Array(values) => values.iter().for_each(|value| keys(value, all)),
        _ => {}
    }
}

#[test]
fn every_field_is_described() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/trace_formats.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let mut all = std::collections::BTreeSet::new();
    let place = Place::new();
    let recording = place.path().join("recording");
    trace(
        &["-o", recording.to_str().expect("text")],
        Command::new("sh").args(["-c", "ls /none; mv /none /other; (exit 3)"]),
    );
    for file in [&recording, &stored("ruby.jsonl")] {
        let text = std::fs::read_to_string(file).expect("a recording");
        text.lines().for_each(|line| keys(&serde_json::from_str(line).expect("JSON"), &mut all));
        let budget = show(&["--json", "--budget", "1"], file);
        for line in stdout(&budget).lines() {
            keys(&serde_json::from_str(line).expect("JSON"), &mut all);
        }
    }
    assert!(all.len() > 60, "{all:?}");
    let missing: Vec<_> = all.iter().filter(|key| !page.contains(&format!("`{key}`"))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
