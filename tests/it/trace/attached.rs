//! A process that runs already is recorded from outside, and does not notice.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

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

/// The program, with what it reads and writes.
struct Python {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Python {
    fn new() -> Self {
        let mut child = Command::new("python3")
            .args(["-S", "-c", PROGRAM])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 starts");
        let input = child.stdin.take().expect("a pipe");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, input, output }
    }

    fn goes_on(&mut self) {
        self.input.write_all(b"line\n").expect("it is read");
    }

    fn said(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line
    }

    /// A thruway that has attached to it.
    fn attached(&self, recording: &Path) -> Child {
        let mut attached = thruway()
            .args(["trace", "--pid", &self.child.id().to_string(), "-o"])
            .arg(recording)
            .stderr(Stdio::piped())
            .spawn()
            .expect("thruway starts");
        let mut told = String::new();
        let mut errors = BufReader::new(attached.stderr.as_mut().expect("a pipe"));
        errors.read_line(&mut told).expect("a line");
        assert!(told.starts_with("attached to process "), "{told}");
        attached
    }

    /// The tracer of each of its threads; 0 is none.
    fn tracers(&self) -> Vec<u32> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id()));
        let tracer = |folder: PathBuf| {
            let status = std::fs::read_to_string(folder.join("status")).expect("a status");
            let line = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
            line.and_then(|line| line.trim().parse().ok()).expect("a number")
        };
        threads.expect("threads").map(|thread| tracer(thread.expect("a thread").path())).collect()
    }
}

#[test]
fn a_process_that_runs_is_recorded_until_we_are_told_to_end_and_again_until_it_ends() {
    if !has("python3") {
        return;
    }
    let mut python = Python::new();
    assert_eq!(python.said(), "ready\n");
    let place = Place::new();
    for expected in ["ready\n", "end\n"] {
        let recording = place.path().join("recording");
        let mut attached = python.attached(&recording);
        python.goes_on();
        assert_eq!(python.said(), expected);
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
    assert_eq!(python.child.wait().expect("it ends").code(), Some(7));
}

#[test]
fn a_process_goes_on_untraced_when_we_are_killed() {
    const TRACER_ENDS: Duration = Duration::from_secs(60);
    if !has("python3") {
        return;
    }
    let mut python = Python::new();
    assert_eq!(python.said(), "ready\n");
    let place = Place::new();
    let mut attached = python.attached(&place.path().join("recording"));
    assert!(python.tracers().iter().all(|tracer| *tracer != 0));
    attached.kill().expect("it is killed");
    attached.wait().expect("it ends");
    let deadline = Instant::now() + TRACER_ENDS;
    while python.tracers().iter().any(|tracer| *tracer != 0) {
        assert!(Instant::now() < deadline, "{:?}", python.tracers());
        std::thread::sleep(Duration::from_millis(10));
    }
    for expected in ["ready\n", "end\n"] {
        python.goes_on();
        assert_eq!(python.said(), expected);
    }
    assert_eq!(python.child.wait().expect("it ends").code(), Some(7));
}

#[test]
fn a_process_that_is_not_there_is_told() {
    let output = thruway().args(["trace", "--pid", "4194303"]).output().expect("thruway starts");
    let expected = "thruway: cannot trace process 4194303: No such process (os error 3)\n";
    assert_eq!((stderr(&output), output.status.code()), (expected, Some(2)));
}
