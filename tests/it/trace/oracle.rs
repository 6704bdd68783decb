//! The counts of each back end equal those of `strace -f -c -e trace=%file`, by call and by error, for the same command
//! and environment.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use super::{BACKENDS, Counts, Place, counts, has, report, trace};

/// Returns the counts of strace. The command runs once before, to fill caches.
fn strace(command: &mut Command) -> Counts {
    let quiet = |command: &mut Command| command.output().expect("the command starts");
    quiet(command);
    let place = Place::new();
    let log = place.path().join("log");
    let mut strace = Command::new("strace");
    // -C is -c with a line a call as well: -c does not tell one error from another.
    strace.args(["-f", "-C", "-e", "trace=%file", "-o"]).arg(&log);
    strace.arg(command.get_program()).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        strace.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => strace.env(name, value),
            None => strace.env_remove(name),
        };
    }
    quiet(&mut strace);
    let log = std::fs::read(log).expect("strace wrote its log");
    parsed(&String::from_utf8_lossy(&log))
}

/// Parses the rows of a summary: five columns, or six where a call failed. Calls of another ABI are in a separate
/// table, and count together with those of the same name.
fn parsed(log: &str) -> Counts {
    let mut counts = Counts::new();
    let mut all_failed = BTreeMap::<String, u64>::new();
    for line in log.lines() {
        if let Some((name, errno)) = failure(line) {
            *counts.entry(name.to_owned()).or_default().1.entry(errno).or_default() += 1;
        } else if let Some((name, calls, failed)) = row(line) {
            counts.entry(name.to_owned()).or_default().0 += calls;
            *all_failed.entry(name.to_owned()).or_default() += failed;
        }
    }
    for (name, failed) in all_failed {
        assert_eq!(counts[&name].1.values().sum::<u64>(), failed, "strace's summary of {name}");
    }
    counts
}

/// Parses a line of a call that failed: `PID NAME(...) = -1 ENOENT (...)`, or its second half.
fn failure(line: &str) -> Option<(&str, i64)> {
    if line.ends_with("<unfinished ...>") {
        return None;
    }
    let (_, line) = line.trim_start().split_once(' ')?;
    let (call, result) = line.rsplit_once(" = ")?;
    let error = result.strip_prefix("-1 ").or_else(|| result.strip_prefix("? "))?;
    let error = error.split(' ').next()?;
    let name = match call.trim_start().strip_prefix("<... ") {
        Some(resumed) => resumed.split(' ').next()?,
        None => call.trim_start().split('(').next()?,
    };
    let number = ERRORS.iter().find(|(_, known)| *known == error).map(|(number, _)| *number);
    Some((name, number.unwrap_or_else(|| panic!("{error} is not in the list: {line}"))))
}

const ERRORS: [(i64, &str); 18] = [
    (1, "EPERM"),
    (2, "ENOENT"),
    (4, "EINTR"),
    (6, "ENXIO"),
    (13, "EACCES"),
    (14, "EFAULT"),
    (17, "EEXIST"),
    (18, "EXDEV"),
    (20, "ENOTDIR"),
    (21, "EISDIR"),
    (22, "EINVAL"),
    (34, "ERANGE"),
    (36, "ENAMETOOLONG"),
    (38, "ENOSYS"),
    (39, "ENOTEMPTY"),
    (40, "ELOOP"),
    (95, "EOPNOTSUPP"),
    (512, "ERESTARTSYS"),
];

/// Parses a row of the summary: the call, the number of calls and the number of failures.
fn row(line: &str) -> Option<(&str, u64, u64)> {
    let columns: Vec<_> = line.split_whitespace().collect();
    let [share, seconds, _, calls, rest @ ..] = columns.as_slice() else { return None };
    let (_, _) = (share.parse::<f64>().ok()?, seconds.parse::<f64>().ok()?);
    let calls = calls.parse().ok()?;
    match rest {
        [_, "total"] | ["total"] => None,
        [failed, name] => Some((name, calls, failed.parse().ok()?)),
        [name] => Some((name, calls, 0)),
        _ => None,
    }
}

/// Converts counts of a tracer to those of the program. A tracer sees that an interrupted call may restart before the
/// outcome is known. The program sees EINTR if the call does not restart.
fn as_programs_see(mut counts: Counts) -> Counts {
    const RESTARTS: i64 = 512;
    const INTERRUPTED: i64 = 4;
    for (_, errors) in counts.values_mut() {
        if let Some(count) = errors.remove(&RESTARTS) {
            *errors.entry(INTERRUPTED).or_default() += count;
        }
    }
    counts
}

pub(super) fn assert_equal(command: &mut Command) {
    if !has("strace") || !has(command.get_program().to_str().expect("text")) {
        return;
    }
    let expected = strace(command);
    assert!(expected.values().map(|(calls, _)| calls).sum::<u64>() > 0, "{expected:?}");
    for backend in BACKENDS {
        let place = Place::new();
        let recording = place.path().join("recording");
        let path = recording.to_str().expect("text");
        trace(&["--backend", backend, "-o", path], command);
        let (got, expected) = (counts(&report(&recording)), expected.clone());
        assert_eq!(as_programs_see(got), as_programs_see(expected), "{backend} {command:?}");
    }
}

#[test]
fn ruby_with_rails() {
    assert_equal(Command::new("ruby").args(["-e", "require 'rails/all'"]).env_remove("RUBYOPT"));
}

#[test]
fn gcc_with_a_hundred_include_folders() {
    let place = Place::new();
    for n in 0..100 {
        place.file(&format!("include/{n}/other.h"), "");
    }
    place.file("include/99/deep.h", "int deep;\n");
    place.file("main.c", "#include <stdio.h>\n#include <stdlib.h>\n#include <deep.h>\nint main;\n");
    let mut gcc = Command::new("gcc");
    gcc.current_dir(place.path()).args((0..100).map(|n| format!("-Iinclude/{n}")));
    assert_equal(gcc.args(["-c", "main.c", "-o", "/dev/null"]));
}

#[test]
fn a_shell_loop_of_two_hundred_commands() {
    let script = "i=0; while [ $i -lt 200 ]; do /bin/true; i=$((i+1)); done";
    assert_equal(Command::new("sh").args(["-c", script]));
}

#[test]
fn a_shell_that_searches_commands_redirects_and_forks() {
    let script = "for i in 1 2 3; do no-such-command 2>/dev/null; ls / | cat >/dev/null; (cd /; pwd) & done; \
                  wait; exec env true";
    assert_equal(Command::new("sh").args(["-c", script]));
}

#[test]
fn pip_list() {
    // Debian's Python has no pip. The folder that scripts/setup creates has one.
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/bin/python");
    let python = if own.is_file() { own } else { "python3".into() };
    let mut pip = Command::new(python);
    assert_equal(pip.args(["-m", "pip", "list"]).env("PIP_DISABLE_PIP_VERSION_CHECK", "1"));
}

const THREADS: &str = "
import os, threading
def ask(i):
    for k in range(300):
        try: os.stat(f'/none/{i}/{k}')
        except OSError: pass
        os.path.exists('/etc/passwd')
        open('/etc/passwd').close()
threads = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
";

#[test]
fn python_with_threads() {
    assert_equal(Command::new("python3").args(["-c", THREADS]));
}

#[test]
fn python_with_many_imports() {
    const IMPORTS: &str =
        "import asyncio, email.mime.text, http.server, json, unittest, xml.dom.minidom";
    assert_equal(Command::new("python3").args(["-c", IMPORTS]));
}

/// A shim like those of version managers: it looks for a file with the version in every folder above.
const SHIM: &str = r#"#!/bin/sh
folder=$PWD
until [ -e "$folder/.version" ] || [ -z "$folder" ]; do folder=${folder%/*}; done
for candidate in 1 2 3; do [ -x "$SHIMS/versions/$candidate/true" ] && exec "$SHIMS/versions/$candidate/true"; done
exec /bin/true
"#;

#[test]
fn a_version_managers_shim() {
    let place = Place::new();
    let shim = place.script("shims/true", SHIM);
    place.file("a/b/c/d/file", "");
    let mut shell = Command::new("sh");
    shell.current_dir(place.path().join("a/b/c/d")).env("SHIMS", place.path().join("shims"));
    assert_equal(shell.arg("-c").arg(format!("for i in 1 2 3 4 5; do {}; done", shim.display())));
}

#[test]
fn names_of_ten_thousand_bytes() {
    const ASK: &str =
        "import os\nfor n in 255, 256, 4095, 4096, 10000: os.path.exists('/' + 'x' * n)";
    assert_equal(Command::new("python3").args(["-S", "-c", ASK]));
}

/// Node's threads make more or fewer calls depending on how they contend in the allocator, so one of three runs has to
/// be equal.
#[test]
fn node() {
    let compare =
        || assert_equal(Command::new("node").args(["-e", "require('fs').readdirSync('/')"]));
    if (0..2).all(|_| std::panic::catch_unwind(compare).is_err()) {
        compare();
    }
}

#[test]
fn git_status() {
    let place = Place::new();
    // git reads files again that are as young as its index.
    let long_ago = SystemTime::now() - Duration::from_secs(3600);
    for n in 0..20 {
        let file = place.file(&format!("folder{}/file{n}", n % 4), "x");
        let file = File::options().write(true).open(file).expect("it opens");
        file.set_modified(long_ago).expect("it takes a time");
    }
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        let identity = ["-c", "user.name=x", "-c", "user.email=x@localhost"];
        git.current_dir(place.path()).args(identity).args(arguments);
        git
    };
    if has("git") {
        for arguments in [&["init"][..], &["add", "."], &["commit", "-m", "x"]] {
            git(arguments).output().expect("git starts");
        }
        assert_equal(&mut git(&["status"]));
    }
}

const QUESTIONS: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
int main(void) {
  struct stat status; char text[64];
  for (int i = 0; i < 50; i++) { stat("/none", &status); open("/etc/passwd", O_RDONLY); access("/etc", 0); }
  readlink("/proc/self/exe", text, sizeof text);
  rename("/none/a", "/none/b"); link("/none/a", "/none/b"); symlink("x", "/none/c"); mkdir("/none/d", 0);
  stat((char *)1, &status); open((char *)1, 0); access(0, 0); chdir("/"); getcwd(text, sizeof text);
  fclose(fopen("/etc/group", "r"));
  return 0;
}
"#;

#[test]
fn programs_with_and_without_a_loader() {
    let place = Place::new();
    for options in [&["-static"][..], &["-static-pie"], &[], &["-no-pie"], &["-O2"]] {
        let program = place.program("questions", QUESTIONS, options);
        assert_equal(&mut Command::new(program));
    }
}

const OLD_CALLS: &str = r#"
int main(void) {
  static char name[] = "/none"; long result;
  for (int i = 0; i < 5; i++)
    asm volatile("int $0x80" : "=a"(result) : "a"(5), "b"(name), "c"(0), "d"(0) : "memory");
  asm volatile("int $0x80" : "=a"(result) : "a"(12), "b"("/") : "memory");
  return result != 0;
}
"#;

#[test]
#[cfg(target_arch = "x86_64")]
fn calls_of_32_bits() {
    let place = Place::new();
    let program = place.program("old", OLD_CALLS, &["-static", "-no-pie"]);
    assert_equal(&mut Command::new(program));
}

const VFORK: &str = r#"
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
extern char **environ;
int main(void) {
  struct stat status; char *arguments[] = {"true", 0}; pid_t child;
  for (int i = 0; i < 20; i++) {
    if (vfork() == 0) {
      open("/none", 0); stat("/etc", &status); execv(i % 2 ? "/bin/true" : "/none/true", arguments); _exit(1);
    }
    wait(0);
    posix_spawn_file_actions_t actions; posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 5, "/etc/passwd", O_RDONLY, 0);
    posix_spawnp(&child, "true", &actions, 0, arguments, environ); waitpid(child, 0, 0);
    if (fork() == 0) { stat("/none", &status); _exit(0); }
    wait(0);
  }
  return 0;
}
"#;

#[test]
fn children_of_every_kind() {
    let place = Place::new();
    assert_equal(&mut Command::new(place.program("vfork", VFORK, &["-O2"])));
}

const THREAD_EXEC: &str = r#"
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>
static void *ask(void *x) { struct stat status; for (int i = 0; i < 100; i++) stat("/none", &status); return x; }
static void *become(void *x) {
  char *arguments[] = {"ls", "/", 0}; struct stat status;
  for (int i = 0; i < 10; i++) stat("/none/thread", &status);
  execv("/bin/ls", arguments); return x;
}
int main(void) {
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, ask, 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
  pthread_create(&threads[0], 0, become, 0);
  for (;;) pause();
}
"#;

#[test]
fn a_thread_that_becomes_a_program() {
    let place = Place::new();
    assert_equal(&mut Command::new(place.program("thread", THREAD_EXEC, &["-pthread"])));
}

/// A process waits in an open until a signal interrupts it, with a handler that looks up names. A child sends the
/// signal once the process sleeps, and opens the other end once the handler has run. Reads, writes and signals do not
/// count.
const INTERRUPTED: &str = r#"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
static int handled[2], opened[2];
static void ask(int signal) {
  struct stat status;
  stat("/none/handler", &status);
  open("/none/handler", 0);
  write(handled[1], "h", 1);
}
static int sleeps(int process) {
  char text[400] = "";
  pread(process, text, sizeof text - 1, 0);
  char *name_end = strrchr(text, ')');
  return name_end && name_end[2] == 'S';
}
static void answer(char *fifo) {
  char byte, path[40];
  snprintf(path, sizeof path, "/proc/%d/stat", getppid());
  int process = open(path, O_RDONLY);
  while (!sleeps(process)) usleep(1000);
  kill(getppid(), SIGALRM);
  read(handled[0], &byte, 1);
  open(fifo, O_RDWR);
  write(opened[1], "o", 1);
  for (;;) pause();
}
int main(int count, char **arguments) {
  char byte;
  if (arguments[1][0] != '/' || pipe(handled) || pipe(opened)) return 0;
  mkfifo(arguments[1], 0600);
  for (int restarts = 0; restarts < 2; restarts++) {
    struct sigaction action = {.sa_handler = ask, .sa_flags = restarts ? SA_RESTART : 0};
    sigaction(SIGALRM, &action, 0);
    pid_t writer = fork();
    if (writer == 0) answer(arguments[1]);
    open(arguments[1], O_RDONLY);
    read(opened[0], &byte, 1);
    kill(writer, SIGKILL);
    waitpid(writer, 0, 0);
  }
  unlink(arguments[1]);
  return 0;
}
"#;

#[test]
fn an_open_that_a_signal_interrupts() {
    let place = Place::new();
    let program = place.program("interrupted", INTERRUPTED, &[]);
    assert_equal(Command::new(program).arg(place.path().join("fifo")));
}

#[test]
fn a_log_is_read_with_its_summary() {
    let log = "\
12 execve(\"/bin/x\", [\"x\"], 0x7ffe /* 3 vars */) = 0
12 access(\"/a = -1 b\", R_OK <unfinished ...>
13 access(\"/a = -1 b\", R_OK)               = -1 EACCES (Permission denied)
12 <... access resumed>)             = -1 ENOENT (No such file or directory)
12 --- SIGCHLD {si_signo=SIGCHLD} ---
12 +++ exited with 0 +++
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 46.98    0.000070          70         1           execve
 10.74    0.000016          16         2         1 access
------ ----------- ----------- --------- --------- ----------------
100.00    0.000149          24         3         1 total
System call usage summary for 32 bit mode:
100.00    0.000149          24         4         1 access
";
    let errors = BTreeMap::from([(2, 1), (13, 1)]);
    let expected = [("access", (6, errors)), ("execve", (1, BTreeMap::new()))];
    assert_eq!(parsed(log), expected.map(|(name, count)| (name.to_owned(), count)).into());
}
