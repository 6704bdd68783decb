//! What only the kernel's back end does, or only it can get wrong.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use super::odd::identity;
use super::oracle::assert_equal;
use super::{Place, backends, events, has, report, trace};
use crate::{stderr, stdout, thruway};
use thruway_testing::skipped;

/// Whether the kernel takes programs from us; says in a line that a test is left out.
fn is_possible() -> bool {
    !backends().is_empty()
}

/// The names that a command asks for, of all its calls.
fn names(command: &mut Command) -> Vec<String> {
    let place = Place::new();
    let recording = place.path().join("recording");
    let options = ["--backend", "ebpf", "-o", recording.to_str().expect("text")];
    let output = trace(&options, command);
    assert!(output.status.success(), "{}", stderr(&output));
    let name = |event: &serde_json::Value| ["name", "second"].map(|key| event[key].clone());
    let names = events(&recording).iter().flat_map(name).collect::<Vec<_>>();
    names.iter().filter_map(|name| Some(name.as_str()?.to_owned())).collect()
}

/// Asks for a name that lies in an untouched page, and becomes a program by such a name.
const UNTOUCHED: &str = r#"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
int main(int count, char **arguments) {
  struct stat status; char *names[2], *none[] = {"true", 0};
  for (int i = 0; i < 2; i++)
    names[i] = mmap(0, 4096, PROT_READ, MAP_PRIVATE, open(arguments[1 + i], O_RDONLY), 0);
  stat(names[0], &status);
  execv(names[1], none);
  return 1;
}
"#;

#[test]
fn names_in_pages_that_were_not_touched() {
    if is_possible() {
        let place = Place::new();
        let program = place.program("untouched", UNTOUCHED, &[]);
        let files =
            [place.file("asked", "/none/mark"), place.file("started", "/usr/bin/../bin/true")];
        let names = names(Command::new(program).args(files));
        for wanted in ["/none/mark", "/usr/bin/../bin/true"] {
            assert!(names.iter().any(|name| name == wanted), "{wanted}: {names:?}");
        }
    }
}

#[test]
fn names_of_every_length() {
    if !is_possible() || !has("python3") {
        return;
    }
    const ASK: &str = "import os\n\
        for n in range(240, 270): os.path.exists('/mark' + '/x' * n)\n\
        for n in 2000, 2044, 2045: os.path.exists('/mark' + '/x' * n)\n\
        try: os.rename('/mark' + '/y' * 2000, '/mark' + '/z' * 1500)\n\
        except OSError: pass\n\
        os.path.exists('/mark')";
    let names = names(Command::new("python3").args(["-S", "-c", ASK]));
    let asked = |letter: &str, n: usize| format!("/mark{}", format!("/{letter}").repeat(n));
    let lengths = (240..270).chain([2000, 2044, 2045]);
    let long = lengths.map(|n| asked("x", n)).chain([asked("y", 2000), asked("z", 1500)]);
    let expected: Vec<_> = long.chain(["/mark".to_owned()]).collect();
    let got: Vec<_> = names.into_iter().filter(|name| name.starts_with("/mark")).collect();
    assert!(got == expected, "{:?}", got.iter().map(String::len).collect::<Vec<_>>());
}

/// A filter of its own lets no `openat` through: the call ends before it began.
const REFUSED: &str = r#"
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(void) {
  struct sock_filter filter[] = {
    {0x20, 0, 0, offsetof(struct seccomp_data, nr)}, {0x15, 0, 1, SYS_openat},
    {0x06, 0, 0, SECCOMP_RET_ERRNO | 95}, {0x06, 0, 0, SECCOMP_RET_ALLOW}};
  struct sock_fprog program = {4, filter};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
  for (int i = 0; i < 7; i++) syscall(SYS_openat, AT_FDCWD, "/mark/refused", O_RDONLY);
  return 0;
}
"#;

#[test]
fn calls_that_a_filter_refuses_are_counted() {
    let place = Place::new();
    assert_equal(&mut Command::new(place.program("refused", REFUSED, &[])));
}

#[test]
fn a_command_under_another_tracer_is_recorded() {
    if !is_possible() || !has("strace") {
        return;
    }
    let mut strace = Command::new("strace");
    strace.args(["-f", "-o", "/dev/null", env!("CARGO_BIN_EXE_thruway"), "trace", "--json", "--"]);
    let output = strace.args(["ls", "/none/mark"]).output().expect("strace starts");
    let summary = stdout(&output).lines().next().unwrap_or_default();
    let summary: serde_json::Value = serde_json::from_str(summary).expect("JSON");
    assert_eq!((&summary["backend"], &summary["status"]), (&"ebpf".into(), &2.into()));
    assert!(summary["calls"].as_u64() > Some(10), "{summary}");
}

#[test]
fn a_tracer_in_the_command_works() {
    if is_possible() && has("strace") {
        let ask = ["-o", "/dev/null", "sh", "-c", "test -e /mark; exit 0"];
        let names = names(Command::new("strace").args(ask));
        assert!(names.iter().any(|name| name == "/mark"));
    }
}

#[test]
fn a_set_user_id_program_keeps_its_rights() {
    let place = Place::new();
    let mut user = identity(&place, &[]);
    if !is_possible() || !has("setpriv") {
        return;
    }
    let direct = user.output().expect("setpriv starts");
    if stdout(&direct) != "0\n" {
        return skipped("set-user-ID takes root, and a file system with it");
    }
    let traced = trace(&["--backend", "ebpf"], &mut user);
    assert_eq!(stdout(&traced), "0\n");
}

#[test]
fn ids_are_those_of_our_own_namespace() {
    if !is_possible() || !has("unshare") {
        return;
    }
    let place = Place::new();
    let recording = place.path().join("recording");
    let mut inside = Command::new("unshare");
    inside.args(["--pid", "--fork", "--mount-proc", env!("CARGO_BIN_EXE_thruway"), "trace"]);
    inside.args(["--backend", "ebpf", "-o"]).arg(&recording);
    let output = inside.args(["--", "sh", "-c", "test -e /mark; echo $$"]).output();
    let output = output.expect("unshare starts");
    if !output.status.success() {
        return skipped("no namespace of process ids can be made here");
    }
    let process: i64 = stdout(&output).trim().parse().expect("a number");
    let events = events(&recording);
    let asked = events.iter().find(|event| event["name"] == "/mark").expect("it was noted");
    assert_eq!(asked["process"], process);
    assert!(report(&recording)[0]["wall_ns"].as_u64() > Some(0));
}

#[test]
fn two_commands_at_once_are_told_apart() {
    if is_possible() {
        let start = |mark: &'static str| {
            let script = format!("for i in 1 2 3 4 5 6 7 8 9; do test -e /mark/{mark}; ls /; done");
            std::thread::spawn(move || names(Command::new("sh").args(["-c", &script])))
        };
        let [one, other] = ["one", "other"].map(start).map(|names| names.join().expect("it ends"));
        for (names, own) in [(one, "/mark/one"), (other, "/mark/other")] {
            let marks: Vec<_> = names.iter().filter(|name| name.starts_with("/mark")).collect();
            assert_eq!(marks, [own; 9]);
        }
    }
}

/// More calls than there is room for, while the recorder is stopped.
const STORM: &str = "import os, sys\n\
    print('ready', flush=True); sys.stdin.readline()\n\
    for i in range(300_000): os.path.exists('/mark')\n\
    print('done', flush=True); sys.stdin.readline()";

#[test]
fn records_that_are_lost_are_told() {
    if !is_possible() || !has("python3") {
        return;
    }
    let mut recorder = thruway()
        .args(["trace", "--backend", "ebpf", "--", "python3", "-S", "-c", STORM])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("thruway starts");
    let mut lines = BufReader::new(recorder.stdout.take().expect("a pipe")).lines();
    let mut line = || lines.next().expect("a line").expect("text");
    let mut input = recorder.stdin.take().expect("a pipe");
    let id = recorder.id().to_string();
    let signal = |name: &str| Command::new("kill").args([name, &id]).status().expect("kill starts");
    assert_eq!(line(), "ready");
    signal("-STOP");
    input.write_all(b"go\n").expect("it is read");
    assert_eq!(line(), "done");
    signal("-CONT");
    input.write_all(b"end\n").expect("it is read");
    let output = recorder.wait_with_output().expect("it ends");
    assert!(output.status.success());
    assert!(stderr(&output).contains("records were lost"), "{}", stderr(&output));
}

#[test]
fn without_the_right_to_it_the_cure_is_told() {
    if !has("setpriv") {
        return;
    }
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-bpf,-sys_admin", env!("CARGO_BIN_EXE_thruway"), "trace"]);
    let output = command.args(["--backend", "ebpf", "--", "true"]).output();
    let output = output.expect("setpriv starts");
    if stderr(&output).starts_with("setpriv:") {
        return skipped("only root can give rights away");
    }
    assert_eq!(output.status.code(), Some(2));
    let expected = "thruway: cannot trace the command by eBPF: programs: Operation not permitted (os error 1)\n\n\
        hint: it takes root, or the capabilities CAP_BPF and CAP_PERFMON\n";
    assert_eq!(stderr(&output), expected);
}
