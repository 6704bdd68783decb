//! What is shown of a recording: stored ones against stored reports.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use super::{Place, report, trace};
use crate::{stderr, stdout, thruway};

/// Recordings of a shell that searches commands, of gcc with include folders, of Ruby with folders
/// on its load path.
const STORED: [&str; 3] = ["shell", "gcc", "ruby"];

fn stored(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/recordings").join(name)
}

fn show(options: &[&str], recording: &Path) -> Output {
    let mut command = thruway();
    command.env_remove("COLUMNS").arg("trace").args(options).arg("--from").arg(recording);
    command.output().expect("thruway starts")
}

/// Compares with a stored text, or stores it where `THRUWAY_STORE` is set.
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
fn other_files_are_refused_with_their_name() {
    let place = Place::new();
    let file = place.file("notes.txt", "hello\n");
    let output = show(&[], &file);
    let expected =
        format!("thruway: {}, line 1: this is no recording of thruway trace\n", file.display());
    assert_eq!((stderr(&output), output.status.code()), (expected.as_str(), Some(2)));
    let missing = show(&[], &place.path().join("missing"));
    assert!(stderr(&missing).contains("/missing: No such file or directory (os error 2)"));
}
