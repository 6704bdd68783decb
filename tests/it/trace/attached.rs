//! A process that runs already is recorded from outside, and does not notice.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use super::{Place, events, has, report};
use crate::{stderr, thruway};

/// A second thread asks for files all the time, the first one waits in a call that a stop would break.
const PROGRAM: &str = "
import os, select, subprocess, sys, threading
poll = select.epoll()
poll.register(0, select.EPOLLIN)
def ask():
    while True:
        os.path.exists('/none/other')
threading.Thread(target=ask, daemon=True).start()
os.chdir('/usr')
for line in range(2):
    print('ready', flush=True)
    assert poll.poll() == [(0, select.EPOLLIN)]
    sys.stdin.readline()
    os.path.exists('none/relative')
    subprocess.run(['ls', '/none/child'], stderr=subprocess.DEVNULL)
print('end', flush=True)
os._exit(7)
";

#[test]
fn a_process_that_runs_is_recorded_until_we_are_told_to_end_and_again_until_it_ends() {
    if cfg!(feature = "ebpf") || !has("python3") {
        return;
    }
    let mut python = Command::new("python3")
        .args(["-S", "-c", PROGRAM])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 starts");
    let mut input = python.stdin.take().expect("a pipe");
    let mut output = BufReader::new(python.stdout.take().expect("a pipe"));
    let mut next = || {
        let mut line = String::new();
        output.read_line(&mut line).expect("a line");
        line
    };
    assert_eq!(next(), "ready\n");
    let place = Place::new();
    for expected in ["ready\n", "end\n"] {
        let recording = place.path().join("recording");
        let mut attached = thruway()
            .args(["trace", "--pid", &python.id().to_string(), "-o"])
            .arg(&recording)
            .stderr(Stdio::piped())
            .spawn()
            .expect("thruway starts");
        let mut told = String::new();
        let mut errors = BufReader::new(attached.stderr.take().expect("a pipe"));
        errors.read_line(&mut told).expect("a line");
        assert!(told.starts_with("attached to process "), "{told}");
        input.write_all(b"line\n").expect("it is read");
        assert_eq!(next(), expected);
        if expected == "ready\n" {
            let sent = Command::new("kill").args(["-INT", &attached.id().to_string()]).status();
            assert!(sent.expect("kill starts").success());
        }
        assert!(attached.wait().expect("it ends").success());
        let events = events(&recording);
        let asked = |name: &str| events.iter().filter(|event| event["name"] == name).count();
        assert_eq!((asked("/usr/none/relative"), asked("/none/child") > 0), (1, true));
        assert!(asked("/none/other") > 1);
        assert_eq!(report(&recording)[0]["is_cut_short"], false);
    }
    assert_eq!(python.wait().expect("it ends").code(), Some(7));
}

#[test]
fn a_process_that_is_not_there_is_told() {
    let output = thruway().args(["trace", "--pid", "4194303"]).output().expect("thruway starts");
    let expected = "thruway: cannot trace process 4194303: No such process (os error 3)\n";
    assert_eq!((stderr(&output), output.status.code()), (expected, Some(2)));
}
