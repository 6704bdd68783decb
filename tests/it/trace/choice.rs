//! The choice and the destination of reports: filters, files, standard input and output, the terminal.

use std::fmt::Write;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::{Place, events, has, report, trace};
use crate::{stderr, stdout, thruway};

fn sh(script: &str) -> Command {
    let mut sh = Command::new("sh");
    sh.args(["-c", script]);
    sh
}

/// The lines of JSON in a file.
fn lines(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).expect("it was written");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// Records a command with several programs.
fn recorded(place: &Place) -> std::path::PathBuf {
    let recording = place.path().join("recording");
    let mut command = sh("ls /etc >/dev/null; cat /etc/hostname /none; ls /none; true");
    trace(&["-o", text(&recording)], command.stderr(Stdio::null()));
    recording
}

fn from(recording: &Path, options: &[&str]) -> Output {
    let output =
        thruway().args(["trace", "--json", "--from"]).arg(recording).args(options).output();
    output.expect("thruway starts")
}

/// Returns the number of calls of strace's class that are reported with these options.
fn calls(recording: &Path, options: &[&str]) -> u64 {
    let output = from(recording, options);
    let first = stdout(&output).lines().next().expect("a line").to_owned();
    let first: Value = serde_json::from_str(&first).expect("JSON");
    first["calls"].as_u64().expect("a count")
}

#[test]
fn json_in_a_file_leaves_stdout_to_the_command() {
    let place = Place::new();
    let file = place.path().join("report.json");
    let json = format!("--json={}", file.display());
    let output = trace(&[&json], &mut sh("echo mine"));
    assert_eq!(stdout(&output), "mine\n");
    assert!(stderr(&output).starts_with("thruway trace  sh -c 'echo mine'"));
    let lines = lines(&file);
    assert_eq!((&lines[0]["group"], &lines[0]["version"]), (&"totals".into(), &3.into()));
    let output = trace(&[&json, "--quiet"], &mut sh("echo mine"));
    assert_eq!((stdout(&output), stderr(&output)), ("mine\n", ""));
    let output = trace(&["--json", text(&file), "--quiet"], &mut sh("true"));
    let hint = format!("hint: a file for JSON is --json={}\n", file.display());
    assert!(stderr(&output).ends_with(&hint), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(126), "it is no program");
}

#[test]
fn calls_are_chosen_by_path_process_and_name() {
    let place = Place::new();
    let recording = recorded(&place);
    let all = events(&recording);
    let count = |is_it: &dyn Fn(&Value) -> bool| {
        all.iter().filter(|event| event["call"].is_string() && is_it(event)).count() as u64
    };
    let name = |event: &Value| event["name"].as_str().unwrap_or_default().to_owned();
    let opens = count(&|event| event["call"] == "openat");
    let none = count(&|event| name(event) == "/none");
    assert!(opens > 5 && none > 1, "{opens} {none}");
    assert_eq!(calls(&recording, &["--call", "openat"]), opens);
    assert_eq!(calls(&recording, &["--path", "/none"]), none);
    assert_eq!(calls(&recording, &["--path", "none"]), none);
    let below = count(&|event| name(event).starts_with("/etc/") || name(event) == "/etc");
    assert_eq!(calls(&recording, &["--path", "/etc/"]), below);
    let libraries = count(&|event| name(event).ends_with(".so.6") && event["call"] == "openat");
    assert_eq!(calls(&recording, &["--path", "*.so.6", "--call=openat,stat"]), libraries);
    // The filters by program and by process agree where a program has a single process.
    let became = |program: &str| {
        let programs = all.iter().filter(|event| event["became"][0] == program);
        programs.map(|event| event["process"].as_i64().expect("an id")).collect::<Vec<_>>()
    };
    let (cat, ls) = (became("cat"), became("ls"));
    let of_cat = calls(&recording, &["--process", "cat"]);
    assert!(of_cat > 5 && ls.len() == 2);
    let of_process = count(&|event| event["process"] == cat[0]);
    assert_eq!(calls(&recording, &["--process", &cat[0].to_string()]), of_process);
    let both = calls(&recording, &["--process", "ls", "--process", "cat"]);
    assert_eq!(both, of_cat + calls(&recording, &["--process", "ls"]));
    let first = stdout(&from(&recording, &["--process", "ls"])).lines().next().map(str::to_owned);
    let first: Value = serde_json::from_str(&first.expect("a line")).expect("JSON");
    assert_eq!(first["processes"], 2);
    let wrong = from(&recording, &["--call", "fly"]);
    assert!(stderr(&wrong).starts_with("thruway: unknown system call fly\n"));
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn calls_are_chosen_by_how_they_ended() {
    let place = Place::new();
    let recording = recorded(&place);
    let all = events(&recording);
    let count = |is_it: &dyn Fn(i64) -> bool| {
        // Calls of strace's class alone are counted in `calls`.
        let calls = all.iter().filter(|event| event["name"].is_string());
        calls.filter(|event| is_it(event["result"].as_i64().expect("a result"))).count() as u64
    };
    let chosen = |status: &str| calls(&recording, &["--status", status]);
    assert!(count(&|result| result == -2) > 2);
    assert_eq!(chosen("ENOENT"), count(&|result| result == -2));
    assert_eq!(chosen("failed"), count(&|result| result < 0));
    assert_eq!(chosen("successful"), calls(&recording, &[]) - chosen("failed"));
    assert_eq!(chosen("successful,failed"), calls(&recording, &[]));
    assert_eq!(chosen("ENOENT,ENOTDIR"), count(&|result| matches!(result, -2 | -20)));
    assert_eq!(chosen("EHWPOISON"), 0);
    for wrong in ["Failed", "enoent", "2", "unfinished", ""] {
        let output = from(&recording, &["--status", wrong]);
        let expected = format!("thruway: unknown status {wrong}");
        assert!(stderr(&output).starts_with(expected.trim_end()), "{}", stderr(&output));
        assert_eq!(output.status.code(), Some(2));
    }
}

/// A line of `--follow`, in words.
fn words(line: &str) -> Vec<&str> {
    line.split_ascii_whitespace().collect()
}

#[test]
fn lines_of_calls_are_those_of_the_recording() {
    let place = Place::new();
    let recording = place.path().join("recording");
    // The command may write half a line to the same stream, so it writes none.
    let mut command = sh("exec 2>/dev/null; mv /none/one /none/two; cd /usr; cat lib/none; true");
    let options =
        ["-q", "--follow", "--status", "ENOENT", "--path", "none", "-o", text(&recording)];
    let output = trace(&options, &mut command);
    let lines: Vec<_> = stderr(&output).lines().collect();
    let calls = events(&recording).into_iter().filter(|event| event["result"] == -2);
    let expected =
        calls.filter(|event| event["name"].as_str().unwrap_or_default().contains("none"));
    let expected: Vec<_> = expected.collect();
    assert_eq!(lines.len(), expected.len(), "{lines:?}");
    for (line, event) in lines.iter().zip(&expected) {
        let words = words(line);
        assert_eq!((words[2], words[3]), (event["call"].as_str().expect("a name"), "ENOENT"));
        assert_eq!(words[4], event["name"].as_str().expect("a name"));
        let second = words.get(5..).unwrap_or_default().join(" ");
        assert_eq!(
            second,
            event["second"].as_str().map_or(String::new(), |name| format!("-> {name}"))
        );
    }
    assert!(lines.iter().any(|line| line.ends_with(" /usr/lib/none")), "{lines:?}");
    // The lines of the recording are data, and go to stdout.
    let mut read = thruway();
    read.args(["trace", "-qf", "--status", "ENOENT", "--path", "none", "--from", text(&recording)]);
    let read = read.output().expect("thruway starts");
    assert_eq!(stdout(&read).lines().collect::<Vec<_>>(), lines);
    let both = from(&recording, &["--follow"]);
    let expected = "thruway: the lines of --follow and JSON cannot both go to stdout\n";
    assert!(stderr(&both).starts_with(expected), "{}", stderr(&both));
    assert_eq!((stdout(&both), both.status.code()), ("", Some(2)));
}

#[test]
fn lines_are_live_and_a_reader_that_leaves_ends_nothing() {
    let place = Place::new();
    let mark = place.path().join("mark");
    // The command waits until the test has read its line.
    let script = "test -e /none/first; while ! test -e \"$0\"; do sleep 0.01; done; test -e /none/last; exit 7";
    let mut traced = thruway();
    traced.args(["trace", "-qf", "--path", "/none", "--", "sh", "-c", script]).arg(&mark);
    let mut traced = traced.stderr(Stdio::piped()).spawn().expect("thruway starts");
    let mut lines = BufReader::new(traced.stderr.take().expect("a pipe"));
    let mut line = String::new();
    lines.read_line(&mut line).expect("a line");
    assert_eq!((words(&line)[3], words(&line)[4]), ("ENOENT", "/none/first"));
    drop(lines);
    std::fs::write(&mark, "").expect("it can be written");
    assert_eq!(traced.wait().expect("it ends").code(), Some(7));
}

#[test]
fn a_recording_is_whole_whatever_is_chosen() {
    let place = Place::new();
    let recording = place.path().join("recording");
    let options = ["--path", "/surely/nothing", "--budget", "0", "-o", text(&recording)];
    let output = trace(&options, &mut sh("true"));
    assert!(stderr(&output).ends_with("within budget: 0 calls of 0\n"), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(0));
    assert!(calls(&recording, &[]) > 3);
}

#[test]
fn a_recording_is_read_from_standard_input() {
    let place = Place::new();
    let recording = recorded(&place);
    let read = |options: &[&str]| {
        let mut command = thruway();
        command.arg("trace").args(options).stdin(File::open(&recording).expect("it is there"));
        command.output().expect("thruway starts")
    };
    assert_eq!(stdout(&read(&["--json", "--from", "-"])), stdout(&from(&recording, &[])));
    let compared = read(&["--compare", text(&recording), "-"]);
    assert!(stdout(&compared).contains("0 names are no longer asked for, 0 are new"));
    let mut command = thruway();
    let output = command.args(["trace", "--from", "-"]).stdin(Stdio::null()).output();
    let expected = "thruway: standard input, line 1: not a recording of thruway trace\n";
    assert_eq!(stderr(&output.expect("thruway starts")), expected);
}

#[test]
fn a_budget_that_is_exceeded_is_told_and_is_in_json() {
    let place = Place::new();
    let file = place.path().join("report.json");
    let json = format!("--json={}", file.display());
    let output = trace(&["--quiet", "--budget", "1", &json], &mut sh("exit 0"));
    assert!(stderr(&output).starts_with("over budget: "), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(1));
    let budget = lines(&file).into_iter().find(|line| line["group"] == "budget").expect("a line");
    assert_eq!((&budget["limit"], &budget["is_over"]), (&1.into(), &true.into()));
    let output = trace(&["--quiet", "--budget", "100000"], &mut sh("exit 0"));
    assert_eq!((stderr(&output), output.status.code()), ("", Some(0)));
    let output = trace(&["--quiet", "--budget", "1"], &mut sh("exit 9"));
    assert!(stderr(&output).starts_with("over budget: "), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(9), "the command's own failure is the news");
}

#[test]
fn the_terminal_is_the_commands_alone() {
    if !has("script") {
        return;
    }
    // A prompt stays there for three seconds. Nothing may be written over it.
    let inner = format!(
        "'{}' trace --quiet -- sh -c 'printf \"name? \"; sleep 3; echo done'",
        env!("CARGO_BIN_EXE_thruway")
    );
    let mut script = Command::new("script");
    script.args(["-qec", &inner, "/dev/null"]).stdin(Stdio::null());
    let output = script.output().expect("script starts");
    assert_eq!(stdout(&output), "name? done\r\n");
    // On request, progress comes in whole lines. The command waits for the first.
    let place = Place::new();
    let mark = place.path().join("mark");
    let wait = "while ! test -e \"$0\"; do sleep 0.01; done";
    let mut traced = thruway();
    traced.args(["trace", "--quiet", "--progress", "--", "sh", "-c", wait]).arg(&mark);
    let mut traced = traced.stderr(Stdio::piped()).spawn().expect("thruway starts");
    let mut lines = BufReader::new(traced.stderr.take().expect("a pipe"));
    let mut line = String::new();
    lines.read_line(&mut line).expect("a line");
    assert!(line.contains(" file calls ") && line.ends_with(" not there\n"), "{line}");
    std::fs::write(&mark, "").expect("it can be written");
    lines.read_to_string(&mut line).expect("text");
    assert!(traced.wait().expect("it ends").success());
    assert!(!line.contains('\u{1b}'));
}

/// Creates an artificial recording: look-ups of these names, all of which are missing.
fn made_up(place: &Place, names: impl Iterator<Item = String>) -> std::path::PathBuf {
    let header = "{\"thruway\":\"trace\",\"format\":1,\"version\":\"0\",\"command\":[\"x\"],\
        \"folder\":\"/\",\"environment\":\"0\",\"variables\":{},\"backend\":\"stub\",\
        \"kernel\":\"Linux\",\"machine\":\"x86_64\",\"started\":0}\n";
    let mut recording = header.to_owned();
    for name in names {
        let _ = writeln!(
            recording,
            "{{\"at_ns\":1,\"process\":7,\"call\":\"stat\",\"result\":-2,\"name\":\"{name}\"}}"
        );
    }
    place.file("made-up", &recording)
}

#[test]
fn lists_that_are_cut_say_so() {
    let place = Place::new();
    let recording = made_up(&place, (0..1_100).map(|number| format!("/f{number}/name")));
    let cut = report(&recording).into_iter().find(|line| line["group"] == "cut").expect("a line");
    assert_eq!((&cut["list"], &cut["shown"]), (&"folder".into(), &1_000.into()));
    assert_eq!(cut["all"], 1_100);
    let output = thruway().args(["trace", "--all", "--from"]).arg(&recording).output();
    let output = output.expect("thruway starts");
    assert!(
        stdout(&output).contains("\n    and 950 more: --json has them\n"),
        "{}",
        stdout(&output)
    );
    let recording = made_up(&place, (0..50_010).map(|number| format!("/f/name{number}")));
    let page = place.path().join("page.html");
    from(&recording, &["--html", text(&page)]);
    let page = std::fs::read_to_string(page).expect("a page");
    assert!(page.contains("\"names_left_out\":10") && page.contains(" are left out"));
}

#[test]
fn a_newer_recording_is_refused_in_a_line() {
    let place = Place::new();
    let file = place.file("newer", "{\"thruway\":\"trace\",\"format\":9,\"other\":1}\n");
    let output = from(&file, &[]);
    let expected = format!(
        "thruway: {}, line 1: format 9 is too new: this thruway reads formats up to 2\n",
        file.display()
    );
    assert_eq!((stderr(&output), output.status.code()), (expected.as_str(), Some(2)));
}
