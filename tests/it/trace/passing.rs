//! The command does not notice the trace, and its end is thruway's.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{BACKENDS, Place, events, has, report, trace};
use crate::{stderr, stdout, thruway};
use thruway_testing::skipped;

fn sh(script: &str) -> Command {
    let mut sh = Command::new("sh");
    sh.args(["-c", script]);
    sh
}

/// Waits until something is so; tests have no other use for time.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "it never came to be that {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The field of `/proc/PID/stat` after the name: state, parent, group and so on.
fn stat(process: u32, field: usize) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, fields) = text.rsplit_once(") ")?;
    fields.split(' ').nth(field).map(str::to_owned)
}

/// The children of a process, by their names.
fn children(process: u32) -> Vec<(u32, String)> {
    let path = format!("/proc/{process}/task/{process}/children");
    let children = std::fs::read_to_string(path).unwrap_or_default();
    let name = |id: u32| std::fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
    let ids = children.split_whitespace().filter_map(|id| id.parse().ok());
    ids.map(|id| (id, name(id).trim_end().to_owned())).collect()
}

fn child(process: u32, wanted: &str) -> Option<u32> {
    children(process).into_iter().find(|(_, name)| name == wanted).map(|(id, _)| id)
}

fn kill(process: u32, signal: &str) {
    let sent = Command::new("kill").args([format!("-{signal}"), process.to_string()]).status();
    assert!(sent.expect("kill starts").success());
}

/// Starts a script under `thruway trace` with pipes, and waits until the script reports that it runs.
fn started(options: &[&str], script: &str) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child = thruway()
        .args(["trace"])
        .args(options)
        .args(["--", "sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("thruway starts");
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    output.read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    (child, output)
}

#[test]
fn the_exit_status_is_the_commands() {
    for backend in BACKENDS {
        let output = trace(&["--backend", backend], &mut sh("exit 7"));
        assert_eq!(output.status.code(), Some(7));
    }
}

#[test]
fn a_signal_that_ends_the_command_ends_us() {
    for backend in BACKENDS {
        for (signal, number) in [("KILL", 9), ("TERM", 15), ("SEGV", 11)] {
            let output = trace(&["--backend", backend], &mut sh(&format!("kill -{signal} $$")));
            assert_eq!(output.status.signal(), Some(number));
            assert!(stderr(&output).contains(&format!("killed by signal {number}")));
        }
    }
}

#[test]
fn input_and_output_are_the_commands_own() {
    for backend in BACKENDS {
        let mut child = thruway()
            .args(["trace", "--backend", backend, "--", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("thruway starts");
        child.stdin.take().expect("a pipe").write_all(b"through\0and\xff").expect("it is read");
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(output.stdout, b"through\0and\xff");
    }
}

#[test]
fn the_environment_and_the_descriptors_are_as_without_us() {
    let script = "env | sort; ls -l /proc/self/fd | sed 's/.*[0-9] \\([0-9]* ->\\)/\\1/' | sort";
    let shown = |text: &[u8]| {
        let text = String::from_utf8_lossy(text).into_owned();
        // Pipes and processes have other numbers each time.
        text.lines()
            .map(|line| line.split(['[', '/']).next().unwrap_or("").to_owned())
            .collect::<Vec<_>>()
    };
    let plain = sh(script).stdin(Stdio::null()).output().expect("sh starts");
    for backend in BACKENDS {
        let traced = trace(&["--backend", backend], sh(script).stdin(Stdio::null()));
        assert_eq!(shown(&traced.stdout), shown(&plain.stdout), "{backend}");
    }
}

#[test]
fn signals_to_us_go_to_the_command() {
    for backend in BACKENDS {
        for signal in ["TERM", "USR1", "HUP", "INT"] {
            // A shell cannot trap a signal that was ignored when it started, as under nohup.
            let script = format!(
                "exec env --default-signal sh -c \
                 \"trap 'echo got; exit 3' {signal}; echo ready; while :; do sleep 0.01; done\""
            );
            let (mut child, mut output) = started(&["--backend", backend], &script);
            kill(child.id(), signal);
            let mut line = String::new();
            output.read_line(&mut line).expect("a line");
            assert_eq!(line, "got\n", "{signal}");
            assert_eq!(child.wait().expect("it ends").code(), Some(3));
        }
    }
}

#[test]
fn a_stopped_command_goes_on() {
    for backend in BACKENDS {
        let (mut child, mut output) = started(
            &["--backend", backend],
            "echo ready; read line; echo \"$line\"; ls /none 2>/dev/null; exit 4",
        );
        let command = child_of(&child, "sh");
        kill(command, "STOP");
        let is_stopped = |id| matches!(stat(id, 0).as_deref(), Some("T" | "t"));
        until("the command stops", || is_stopped(command));
        until("we stop with it", || is_stopped(child.id()));
        kill(child.id(), "CONT");
        until("we go on", || !is_stopped(child.id()));
        child.stdin.take().expect("a pipe").write_all(b"hello\n").expect("it is read");
        let mut line = String::new();
        output.read_line(&mut line).expect("a line");
        assert_eq!(line, "hello\n");
        assert_eq!(child.wait().expect("it ends").code(), Some(4));
    }
}

fn child_of(parent: &Child, name: &str) -> u32 {
    let mut found = None;
    until("the child is there", || {
        found = child(parent.id(), name);
        found.is_some()
    });
    found.expect("it was found")
}

#[test]
fn the_command_is_in_our_group_and_our_child() {
    let (mut child, _output) = started(&[], "echo ready; read line");
    let command = child_of(&child, "sh");
    assert_eq!(stat(command, 1), Some(child.id().to_string()));
    assert_eq!(stat(command, 2), stat(child.id(), 2));
    drop(child.stdin.take());
    child.wait().expect("it ends");
}

#[test]
fn children_that_outlive_the_command_are_waited_for_and_counted() {
    let place = Place::new();
    let recording = place.path().join("recording");
    let script = "(sleep 0.3; ls /none/late 2>/dev/null) & exit 0";
    trace(&["-o", recording.to_str().expect("text")], sh(script).stdout(Stdio::null()));
    let late = events(&recording).iter().any(|event| event["name"] == "/none/late");
    assert!(late);
}

#[test]
fn many_threads_and_processes_at_once() {
    if !has("python3") {
        return;
    }
    let place = Place::new();
    let recording = place.path().join("recording");
    // More threads than have rings of their own.
    let program = "
import os, threading
barrier = threading.Barrier(700)
def ask():
    barrier.wait()
    for k in range(5):
        os.path.exists('/none/thread')
threading.stack_size(65536)
threads = [threading.Thread(target=ask) for _ in range(700)]
for thread in threads: thread.start()
for thread in threads: thread.join()
children = [os.fork() or (os.path.exists('/none/process'), os._exit(0)) for _ in range(200)]
for child in children: os.waitpid(child, 0)
";
    let mut python = Command::new("python3");
    let output = trace(&["-o", recording.to_str().expect("text")], python.args(["-c", program]));
    assert!(output.status.success(), "{}", stderr(&output));
    let asked = |name| events(&recording).iter().filter(|event| event["name"] == name).count();
    assert_eq!((asked("/none/thread"), asked("/none/process")), (3500, 200));
}

#[test]
fn the_recorders_death_does_not_harm_the_command() {
    for backend in BACKENDS {
        let place = Place::new();
        let (recording, done) = (place.path().join("recording"), place.path().join("done"));
        let script = format!(
            "ls / >/dev/null; echo ready; read line; \
             for i in 1 2 3 4 5; do ls /none 2>/dev/null; ls / >/dev/null || exit 1; done; \
             echo \"$?\" > {}",
            done.display()
        );
        let options = ["--backend", backend, "-o", recording.to_str().expect("text")];
        let (mut child, _output) = started(&options, &script);
        let mut input = child.stdin.take().expect("a pipe");
        kill(child.id(), "KILL");
        child.wait().expect("it ends");
        input.write_all(b"go\n").expect("the command lives");
        until("the command ends", || {
            std::fs::read_to_string(&done).is_ok_and(|text| text == "0\n")
        });
        let report = report(&recording);
        assert_eq!(report[0]["is_cut_short"], true, "{backend}");
    }
}

#[test]
fn the_tracers_death_does_not_harm_the_command() {
    for backend in BACKENDS {
        let place = Place::new();
        let recording = place.path().join("recording");
        let script = "ls / >/dev/null; echo ready; read line; \
                      for i in 1 2 3 4 5; do ls /none 2>/dev/null; ls / >/dev/null || exit 1; done; exit 5";
        let options = ["--backend", backend, "-o", recording.to_str().expect("text")];
        let (mut child, _output) = started(&options, script);
        let (tracer, command) = (child_of(&child, "thruway-tracer"), child_of(&child, "sh"));
        kill(tracer, "KILL");
        let status = |id| std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        let traced_by_us = format!("TracerPid:\t{}\n", child.id());
        until("we have attached", || status(command).contains(&traced_by_us));
        child.stdin.take().expect("a pipe").write_all(b"go\n").expect("the command lives");
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(5), "{backend}");
        assert!(stderr(&output).contains("the recording ends before the command"));
        assert_eq!(report(&recording)[0]["is_cut_short"], true);
    }
}

#[test]
fn a_full_disk_does_not_harm_the_command() {
    let output = trace(&["-o", "/dev/full"], &mut sh("ls / >/dev/null; echo through"));
    assert_eq!(output.status.code(), Some(2), "not even the header can be written");
    on_a_small_disk(|small| {
        let recording = small.join("recording");
        let options = ["-o", recording.to_str().expect("text")];
        let script = "for i in 1 2 3 4 5 6 7 8 9; do ls / >/dev/null; done; \
                      ls -R /usr/lib >/dev/null; echo through; exit 6";
        let output = trace(&options, &mut sh(script));
        assert_eq!((stdout(&output), output.status.code()), ("through\n", Some(6)));
        let errors = stderr(&output);
        assert!(errors.contains(" ends early: No space left on device"), "{errors}");
        assert_eq!(report(&recording)[0]["is_cut_short"], true);
    });
}

/// Runs `use_it` with a folder on a file system of 64 KiB, if one can be mounted.
fn on_a_small_disk(use_it: impl FnOnce(&Path)) {
    let place = Place::new();
    let small = place.path().join("small");
    std::fs::create_dir(&small).expect("it can be made");
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "none"]).arg(&small).output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        return skipped("no small file system can be mounted here");
    }
    let used = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| use_it(&small)));
    Command::new("umount").arg(&small).status().expect("umount starts");
    if let Err(panic) = used {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn no_part_of_a_page_is_left_on_a_full_disk() {
    on_a_small_disk(|small| {
        let page = small.join("page.html");
        let options = ["--html", page.to_str().expect("text")];
        let script = "ls -R /usr/lib /usr/share/doc >/dev/null; echo through; exit 6";
        let output = trace(&options, &mut sh(script));
        assert_eq!((stdout(&output), output.status.code()), ("through\n", Some(6)));
        let message = format!(
            "thruway: cannot write {}: No space left on device (os error 28)\n",
            options[1]
        );
        assert!(stderr(&output).contains(&message), "{}", stderr(&output));
        assert!(std::fs::metadata(&page).is_err(), "nothing is left of it");
    });
    let output = trace(&["--html", "/dev/full"], &mut sh("exit 6"));
    assert_eq!(output.status.code(), Some(6));
    assert!(stderr(&output).contains("cannot write /dev/full: No space left on device"));
    assert!(std::fs::metadata("/dev/full").is_ok());
}

#[test]
fn reports_of_a_recording_that_cannot_be_written_are_a_failure() {
    let place = Place::new();
    let recording = place.path().join("recording");
    let text = recording.to_str().expect("text");
    assert!(trace(&["-o", text], &mut sh("true")).status.success());
    let full = || std::fs::File::options().write(true).open("/dev/full").expect("it is there");
    let report = |options: &[&str]| {
        let mut thruway = thruway();
        thruway.args(["trace", "--from", text]).args(options);
        thruway
    };
    let json = report(&["--json"]).stdout(full()).output().expect("thruway starts");
    let message = "thruway: cannot write to stdout: No space left on device (os error 28)\n";
    assert_eq!((stderr(&json), json.status.code()), (message, Some(2)));
    for option in ["--html", "--perfetto"] {
        let output = report(&[option, "/dev/full"]).output().expect("thruway starts");
        assert!(stderr(&output).contains("/dev/full"), "{}", stderr(&output));
        assert!(stderr(&output).contains("No space left on device (os error 28)\n"));
        assert_eq!(output.status.code(), Some(2), "{option}");
    }
}

#[test]
fn a_limit_on_files_ends_the_recording_and_not_the_command() {
    if !has("prlimit") {
        return;
    }
    let place = Place::new();
    let recording = place.path().join("recording");
    let script = "echo ready; read line; ls -lR /etc >/dev/null; echo through; exit 6";
    let (mut child, mut output) = started(&["-o", recording.to_str().expect("text")], script);
    let mut prlimit = Command::new("prlimit");
    prlimit.args(["--fsize=4096", &format!("--pid={}", child.id())]);
    assert!(prlimit.status().expect("prlimit starts").success());
    child.stdin.take().expect("a pipe").write_all(b"go\n").expect("it is read");
    let mut line = String::new();
    output.read_line(&mut line).expect("a line");
    let end = child.wait_with_output().expect("it ends");
    assert_eq!((line.as_str(), end.status.code()), ("through\n", Some(6)));
    assert!(stderr(&end).contains(" ends early: File too large"), "{}", stderr(&end));
    assert_eq!(report(&recording)[0]["is_cut_short"], true);
}

#[test]
fn a_limit_on_files_from_the_start_is_told() {
    let script = format!("ulimit -f 8; exec '{}' trace -- true", env!("CARGO_BIN_EXE_thruway"));
    let output = sh(&script).output().expect("sh starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("File too large"), "{}", stderr(&output));
    assert!(stderr(&output).contains("raise ulimit -f"), "{}", stderr(&output));
}

#[test]
fn bad_input_is_told_in_a_line() {
    let failed = |command: &mut Command| {
        let output = trace(&[], command);
        (stderr(&output).lines().next().unwrap_or("").to_owned(), output.status.code())
    };
    let missing = failed(&mut Command::new("surely-no-such-command"));
    assert_eq!(
        missing,
        ("thruway: cannot find the command surely-no-such-command".into(), Some(127))
    );
    let missing = failed(&mut Command::new("/none/command"));
    let expected = "thruway: cannot run /none/command: No such file or directory (os error 2)";
    assert_eq!(missing, (expected.into(), Some(127)));
    let place = Place::new();
    let folder = failed(&mut Command::new(place.path()));
    assert_eq!(folder.1, Some(126));
    assert!(folder.0.contains(": Permission denied (os error 13)"), "{}", folder.0);
    let file = place.script("script", "no program\n");
    let (line, code) = failed(&mut Command::new(&file));
    assert_eq!(code, Some(126));
    assert!(line.contains(": Exec format error (os error 8)"), "{line}");
}

#[test]
fn a_tracer_within_a_tracer_says_that_it_may_not() {
    let mut inner = Command::new(env!("CARGO_BIN_EXE_thruway"));
    let output = trace(&[], inner.args(["trace", "--backend", "stub", "--", "true"]));
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("thruway: cannot trace the command: Operation not permitted"));
}
