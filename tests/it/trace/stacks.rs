//! `--stacks`: the code that asks for files.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{Place, report, trace};
use crate::{stderr, stdout, thruway};

/// Asks for files on three lines: in a loop, in a second thread, and in a child.
const PROGRAM: &str = r#"
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#define APART __attribute__((noinline)) static
APART int find_config(int i) {
  char name[64];
  snprintf(name, sizeof name, "/nowhere/%d", i);
  int file = open(name, O_RDONLY);
  return file + 1;
}
APART int load(int count) {
  int all = 0;
  for (int i = 0; i < count; i++)
    all += find_config(i);
  return all;
}
APART void *in_thread(void *all) {
  *(int *)all += access("/nowhere/thread", F_OK);
  return all;
}
APART int in_child(void) {
  int result = access("/nowhere/child", F_OK);
  return result + 2;
}
int main(void) {
  int all = load(30);
  pthread_t thread;
  pthread_create(&thread, NULL, in_thread, &all);
  pthread_join(thread, NULL);
  if (fork() == 0)
    _exit(in_child());
  wait(NULL);
  return all + 1;
}
"#;

/// Returns the program's own functions on the stack of the look-up of `name`.
fn functions(report: &[Value], name: &str) -> Vec<String> {
    let is_it = |line: &&Value| line["group"] == "stack" && line["name"] == name;
    let stack = report.iter().find(is_it).expect("the stack is reported");
    let frames = stack["frames"].as_array().expect("frames");
    let own = frames.iter().filter(|frame| {
        frame["object"].as_str().is_some_and(|object| object.ends_with("/asks"))
            && frame["function"] != "_start"
    });
    own.map(|frame| frame["function"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Traces the program with stacks and returns the report of its recording.
fn traced(place: &Place, program: &Path) -> Vec<Value> {
    let recording = place.path().join("stacks.jsonl");
    let output = trace(
        &["--stacks", "-q", "-o", recording.to_str().expect("text")],
        &mut Command::new(program),
    );
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    report(&recording)
}

#[test]
fn the_line_that_asks_is_named_with_its_callers() {
    let place = Place::new();
    let program = place.program("asks", PROGRAM, &["-g", "-O1", "-pthread"]);
    let report = traced(&place, &program);
    assert_eq!(functions(&report, "/nowhere/0"), ["find_config", "load", "main"]);
    assert_eq!(functions(&report, "/nowhere/thread"), ["in_thread"]);
    assert_eq!(functions(&report, "/nowhere/child"), ["in_child", "main"]);

    let is_loop = |line: &&Value| line["group"] == "stack" && line["name"] == "/nowhere/0";
    let stack = report.iter().find(is_loop).expect("the stack of the loop");
    assert_eq!((&stack["asked"], &stack["missed"]), (&30.into(), &30.into()));
    let frames = stack["frames"].as_array().expect("frames");
    let place_of = |function: &str| {
        let frame = frames.iter().find(|frame| frame["function"] == function).expect("a frame");
        (
            frame["file"].as_str().expect("a file").rsplit('/').next().map(str::to_owned),
            &frame["line"],
        )
    };
    let line = |code: &str| {
        let before = PROGRAM.split_once(code).expect("a line of the program").0;
        Value::from(before.lines().count())
    };
    assert_eq!(place_of("find_config"), (Some("asks.c".to_owned()), &line("int file = open")));
    assert_eq!(place_of("load"), (Some("asks.c".to_owned()), &line("all += find_config")));

    let recording = place.path().join("stacks.jsonl");
    let mut lines = thruway();
    lines.args(["trace", "-qf", "--call", "openat", "--path", "/nowhere", "--from"]);
    let output = lines.arg(&recording).output().expect("thruway starts");
    let first: Vec<_> = stdout(&output).lines().take_while(|line| !line.contains("/1")).collect();
    assert!(first[0].ends_with("ENOENT  /nowhere/0"), "{first:?}");
    let own: Vec<_> = first.iter().filter(|line| line.contains("asks.c:")).collect();
    assert_eq!(own.len(), 3, "{first:?}");
}

#[test]
fn without_rules_for_unwinding_frame_pointers_are_followed() {
    let place = Place::new();
    let options = [
        "-O1",
        "-pthread",
        "-fno-omit-frame-pointer",
        "-fno-asynchronous-unwind-tables",
        "-fno-unwind-tables",
    ];
    let program = place.program("asks", PROGRAM, &options);
    let report = traced(&place, &program);
    assert_eq!(functions(&report, "/nowhere/0"), ["find_config", "load", "main"]);
}

#[test]
fn a_process_that_runs_already_has_stacks_too() {
    let place = Place::new();
    let source = PROGRAM.replace("int all = load(30);", "getchar(); int all = load(30);");
    let program = place.program("asks", &source, &["-g", "-O1", "-pthread"]);
    let mut child = Command::new(program).stdin(Stdio::piped()).spawn().expect("it starts");
    let recording = place.path().join("stacks.jsonl");
    let mut traced = thruway();
    traced.args(["trace", "--stacks", "-o"]).arg(&recording).arg("--pid");
    traced.arg(child.id().to_string()).stderr(Stdio::piped());
    let mut traced = traced.spawn().expect("thruway starts");
    let mut told = String::new();
    let mut messages = BufReader::new(traced.stderr.take().expect("a pipe"));
    messages.read_line(&mut told).expect("a line");
    assert!(told.starts_with("attached to process"), "{told}");
    drop(child.stdin.take());
    assert!(child.wait().expect("it ends").success());
    std::io::copy(&mut messages, &mut std::io::sink()).expect("the report is read");
    assert!(traced.wait().expect("it ends").success());
    assert_eq!(functions(&report(&recording), "/nowhere/0"), ["find_config", "load", "main"]);
}

#[test]
fn stacks_need_calls_that_stop() {
    let output = trace(&["--stacks", "--backend", "stub"], &mut Command::new("true"));
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("hint: a stack is read while its call stops"));
}

/// A script that asks for files on lines whose stacks it first prints as Ruby has them: after code of some thousand
/// instructions, in blocks, in a second thread, and in code without a file.
const SCRIPT: &str = r##"
def say(frames)
  warn frames.map { |frame| "#{frame.path}:#{frame.lineno} #{frame.label}" }.join(",")
end

def twice
  yield
  yield
end

class Finder
  def find(name)
    twice { say(caller_locations(0)); File.exist?("/nowhere/#{name}") }
  end
end

eval("def long(finder)\nx = 0\n" + "x += 1\n" * 900 + "finder.find(:long)\nend", nil, "long.rb", 1)
eval("def short(finder) = finder.find(:short)")
finder = Finder.new
finder.find(:main)
long(finder)
short(finder)
Thread.new { twice { finder.find(:thread) } }.join
"##;

#[test]
fn scripts_of_ruby_have_the_stacks_that_ruby_tells() {
    let version = Command::new("ruby").args(["-e", "print RUBY_VERSION"]).output();
    if !version.is_ok_and(|output| output.stdout.starts_with(b"3.1.")) {
        thruway_testing::skipped(format_args!("ruby is not of version 3.1"));
        return;
    }
    let mut ruby = Command::new("ruby");
    ruby.env_remove("RUBYOPT").arg("--disable=gems");
    compare_script(&mut ruby, SCRIPT, &[("main", 2), ("long", 2), ("short", 2), ("thread", 4)]);
}

/// Asks for files on lines whose stacks it first prints as Python has them: after code of some thousand instructions,
/// in lambdas, in a generator, between calls of C code, in lines of several words, with names that are not ASCII, in a
/// second thread, and in a coroutine.
const PYTHON_SCRIPT: &str = r#"
import os, sys, threading

def say():
    frame, frames = sys._getframe(1), []
    while frame:
        code = frame.f_code
        frames.append(f"{code.co_filename}:{frame.f_lineno} {code.co_qualname}")
        frame = frame.f_back
    sys.stderr.buffer.write((",".join(frames) + "\n").encode())
    sys.stderr.flush()

def twice(block):
    block()
    block()

class Finder:
    def find(self, name):
        twice(lambda: (say(), os.access(f"/nowhere/{name}", os.F_OK)))

finder = Finder()
finder.find("main")
exec(compile("def long():\n x = 0\n" + " x += 1\n" * 900 + " finder.find('long')", "long.py", "exec"))
long()

def generate(names):
    for name in names:
        yield finder.find(name)

list(generate(["generator"]))
list(map(finder.find, ["mapped"]))
finder.find(
    "lines".lower(
    )
)
exec(compile("def größe(): finder.find('latin')", "größe.py", "exec"))
größe()
exec(compile("def 大きさ(): finder.find('wide')", "大きさ.py", "exec"))
大きさ()

async def wait():
    finder.find("coroutine")

try:
    wait().send(None)
except StopIteration:
    pass
thread = threading.Thread(target=lambda: finder.find("thread"))
thread.start()
thread.join()
"#;

#[test]
fn scripts_of_python_have_the_stacks_that_python_tells() {
    // Debian 12 has version 3.11, Debian 13 has 3.13. A wrapper in front of either would ask for files, too.
    const PYTHON: &str = "/usr/bin/python3";
    let version = "import sys; print(sys.version_info[:2])";
    let version = Command::new(PYTHON).args(["-c", version]).output();
    let version = version.map(|output| stdout(&output).trim().to_owned()).unwrap_or_default();
    if !["(3, 11)", "(3, 13)"].contains(&&*version) {
        thruway_testing::skipped(format_args!("{PYTHON} is neither of version 3.11 nor of 3.13"));
        return;
    }
    let mut python = Command::new(PYTHON);
    python.args(["-I", "-B", "-X", "utf8"]);
    let names = ["main", "long", "generator", "mapped", "lines", "latin", "wide", "coroutine"];
    let mut asks: Vec<_> = names.map(|name| (name, 2)).into();
    asks.push(("thread", 2));
    compare_script(&mut python, PYTHON_SCRIPT, &asks);
}

/// Compares the recorded stacks of a script with those that the script prints, in the order of `asks`: names, and how
/// many stacks are printed for each.
fn compare_script(interpreter: &mut Command, script: &str, asks: &[(&str, usize)]) {
    let place = Place::new();
    let script = place.file("asks", script);
    let recording = place.path().join("stacks.jsonl");
    let options = ["--stacks", "-q", "-o", recording.to_str().expect("text")];
    let output = trace(&options, interpreter.arg(&script));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report = report(&recording);
    let mut told = stderr(&output).lines();
    for (name, count) in asks {
        let name = format!("/nowhere/{name}");
        let is_of_name = |line: &&Value| line["group"] == "stack" && line["name"] == name;
        let mut recorded: Vec<String> =
            report.iter().filter(is_of_name).map(scripts_frames).collect();
        let mut told: Vec<_> = told.by_ref().take(*count).map(str::to_owned).collect();
        recorded.sort();
        told.sort();
        assert_eq!(recorded, told, "{interpreter:?}: {name}");
    }
    assert_eq!(told.next(), None);
}

/// The frames of a stack that belong to a script, as the script prints them.
fn scripts_frames(stack: &Value) -> String {
    let frames = stack["frames"].as_array().expect("frames");
    let own = frames.iter().filter(|frame| frame["object"].is_null());
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let line = own.map(|frame| {
        format!("{}:{} {}", text(&frame["file"]), frame["line"], text(&frame["function"]))
    });
    line.collect::<Vec<_>>().join(",")
}
