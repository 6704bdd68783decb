//! A running process is recorded from outside, without noticing.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Place, events, has, report};
use crate::{stderr, thruway};

/// A program whose second thread looks up files all the time. The first thread waits in a call that a stop would
/// interrupt, and then for three look-ups of the second one, of which the first may have begun before it was traced.
const PROGRAM: &str = "
import os, select, subprocess, sys, threading
poll = select.epoll()
poll.register(0, select.EPOLLIN)
asked = threading.Event()
def ask():
    while True:
        os.path.exists('/none/other')
        asked.set()
threading.Thread(target=ask, daemon=True).start()
os.chdir('/usr')
for line in range(2):
    print('ready', flush=True)
    assert poll.poll() == [(0, select.EPOLLIN)]
    sys.stdin.readline()
    for look_up in range(3):
        asked.clear()
        asked.wait()
    os.path.exists('none/relative')
    subprocess.run(['ls', '/none/child'], stderr=subprocess.DEVNULL)
print('end', flush=True)
os._exit(7)
";

/// The program, with its input and output.
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

    fn read_line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line
    }

    /// Attaches a thruway to the program.
    fn attached(&self, recording: &Path) -> Child {
        let process = self.child.id().to_string();
        let (attached, told) = attached(&["--pid", &process], recording);
        assert_eq!(told, format!("attached to process {process}; Ctrl-C ends the recording\n"));
        attached
    }

    /// Returns the tracer of each of its threads; 0 means none.
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

/// Attaches a thruway to processes, and returns it with its first line.
fn attached(processes: &[&str], recording: &Path) -> (Child, String) {
    let mut attached = thruway()
        .arg("trace")
        .args(processes)
        .arg("-o")
        .arg(recording)
        .stderr(Stdio::piped())
        .spawn()
        .expect("thruway starts");
    let mut told = String::new();
    let mut errors = BufReader::new(attached.stderr.as_mut().expect("a pipe"));
    errors.read_line(&mut told).expect("a line");
    (attached, told)
}

#[test]
fn a_process_that_runs_is_recorded_until_we_are_told_to_end_and_again_until_it_ends() {
    if !has("python3") {
        return;
    }
    let mut python = Python::new();
    assert_eq!(python.read_line(), "ready\n");
    let place = Place::new();
    for expected in ["ready\n", "end\n"] {
        let recording = place.path().join("recording");
        let mut attached = python.attached(&recording);
        python.goes_on();
        assert_eq!(python.read_line(), expected);
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
    assert_eq!(python.read_line(), "ready\n");
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
        assert_eq!(python.read_line(), expected);
    }
    assert_eq!(python.child.wait().expect("it ends").code(), Some(7));
}

/// A process in `folder` that looks up `none` after it has read a line.
struct Shell {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Shell {
    fn new(folder: &str) -> Self {
        let script = "while echo ready; read line; do test -e none; done";
        let mut sh = Command::new("sh");
        sh.args(["-c", script]).current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = sh.spawn().expect("sh starts");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut shell = Self { child, output };
        shell.is_ready();
        shell
    }

    fn is_ready(&mut self) {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
    }

    fn asks(&mut self) {
        self.child.stdin.as_mut().expect("a pipe").write_all(b"line\n").expect("it is read");
        self.is_ready();
    }

    fn id(&self) -> String {
        self.child.id().to_string()
    }

    fn ends(&mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().is_ok());
    }
}

#[test]
fn several_processes_are_recorded_each_from_its_own_folder_until_the_last_ends() {
    let place = Place::new();
    let recording = place.path().join("recording");
    let mut shells = ["/usr", "/etc", "/var"].map(Shell::new);
    let ids = shells.each_ref().map(Shell::id);
    let list = format!("{}, {}", ids[0], ids[1]);
    let (mut thruway, told) = attached(&["-p", &list, "-p", &ids[2], "--pid", &ids[0]], &recording);
    let expected = format!("attached to processes {}; Ctrl-C ends the recording\n", ids.join(", "));
    assert_eq!(told, expected);
    shells.iter_mut().for_each(Shell::asks);
    // The first ends, and the others are still recorded.
    shells[0].ends();
    shells[1].asks();
    shells.iter_mut().skip(1).for_each(Shell::ends);
    assert!(thruway.wait().expect("it ends").success());
    let events = events(&recording);
    let asked = |id: &str, name: &str| {
        let of = |event: &&serde_json::Value| event["process"].as_i64() == id.parse().ok();
        events.iter().filter(of).filter(|event| event["name"] == name).count()
    };
    let counts = [(0, "/usr/none"), (1, "/etc/none"), (2, "/var/none")];
    assert_eq!(counts.map(|(index, name)| asked(&ids[index], name)), [1, 2, 1]);
    let totals = &report(&recording)[0];
    assert_eq!((&totals["processes"], &totals["is_cut_short"]), (&3.into(), &false.into()));
}

#[test]
fn one_process_that_cannot_be_traced_leaves_the_others_alone() {
    let mut shell = Shell::new("/");
    let list = format!("{},4194303", shell.id());
    let output = thruway().args(["trace", "-p", &list]).output().expect("thruway starts");
    let expected = "thruway: cannot trace process 4194303: No such process (os error 3)\n";
    assert_eq!((stderr(&output), output.status.code()), (expected, Some(2)));
    shell.asks();
    shell.ends();
    for (wrong, message) in
        [("1,x", "x is not the ID of a process"), (" , ", "no process"), ("-1", "-1 is not")]
    {
        let output = thruway().args(["trace", &format!("--pid={wrong}")]).output();
        let output = output.expect("thruway starts");
        assert!(stderr(&output).contains(message), "{}", stderr(&output));
        assert_eq!(output.status.code(), Some(2));
    }
}

#[test]
fn a_process_that_is_not_there_is_told() {
    let output = thruway().args(["trace", "--pid", "4194303"]).output().expect("thruway starts");
    let expected = "thruway: cannot trace process 4194303: No such process (os error 3)\n";
    assert_eq!((stderr(&output), output.status.code()), (expected, Some(2)));
}
