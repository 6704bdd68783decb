//! Programs whose calls the stub records although they are unlike C's: of Go and of musl, and with an unusable stack.
//! Their counts are strace's, and the tracer itself records almost none.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use super::oracle::assert_equal;
use super::{Place, has, report, trace};
use crate::stderr;

/// The only call of any program that the tracer always records: the start of the command.
const NOTED_BY_TRACER: u64 = 1;

/// Records the command by the stub. Returns how often the tracer was woken, how many calls the tracer itself recorded,
/// and how many calls there were.
#[cfg(target_arch = "x86_64")]
fn stops(command: &mut Command) -> [u64; 3] {
    let place = Place::new();
    let recording = place.path().join("recording");
    let options = ["--backend", "stub", "-o", recording.to_str().expect("text")];
    let output = trace(&options, command);
    assert!(output.status.success(), "{}", stderr(&output));
    let totals = &report(&recording)[0];
    ["stops", "traced", "calls"].map(|name| totals[name].as_u64().expect("a count"))
}

const WALKER: &str = r#"
package main

import (
	"os"
	"path/filepath"
	"sync"
)

func main() {
	var group sync.WaitGroup
	for worker := 0; worker < 8; worker++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for round := 0; round < 10; round++ {
				filepath.Walk(os.Args[1], func(path string, _ os.FileInfo, _ error) error {
					os.Stat(path + ".none")
					return nil
				})
			}
		}()
	}
	group.Wait()
}
"#;

/// A command of Go's that uses no network, and no folder but the place's own.
fn go(place: &Place, arguments: &[&str]) -> Command {
    let mut go = Command::new("go");
    let own = |name: &str| place.path().join(name);
    go.args(arguments).current_dir(own("module"));
    // Go's library is compiled once for all tests.
    go.env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-cache"));
    go.env("GOPATH", own("path")).env("HOME", own("home"));
    go.env("GOPROXY", "off").env("GOTOOLCHAIN", "local").env("CGO_ENABLED", "0");
    go.env_remove("GOFLAGS");
    go
}

/// A module with a package beside the program.
fn module() -> Place {
    let place = Place::new();
    place.file("module/go.mod", "module example.com/walk\n");
    place.file("module/main.go", WALKER);
    place.file("module/part/part.go", "package part\n\nfunc Two() int { return 2 }\n");
    place.file("home/file", "");
    // Go does not trust its index of folders whose files are younger than two seconds, and looks again.
    let long_ago = SystemTime::now() - Duration::from_secs(3600);
    for name in ["module/go.mod", "module/main.go", "module/part/part.go"] {
        let file = File::options().write(true).open(place.path().join(name)).expect("it opens");
        file.set_modified(long_ago).expect("it takes a time");
    }
    place
}

fn walker(place: &Place) -> PathBuf {
    let output = go(place, &["build", "-o", "../walker", "."]).output().expect("go starts");
    assert!(output.status.success(), "{}", stderr(&output));
    place.path().join("walker")
}

/// Creates folders with files, for programs that walk through them.
fn tree(place: &Place) -> PathBuf {
    for file in 0..60 {
        place.file(&format!("tree/{}/{}/file{file}", file % 3, file % 5), "");
    }
    place.path().join("tree")
}

#[test]
fn a_go_program_with_many_goroutines() {
    if !has("go") {
        return;
    }
    let place = module();
    let (walker, tree) = (walker(&place), tree(&place));
    assert_equal(Command::new(&walker).arg(&tree));
    #[cfg(target_arch = "x86_64")]
    {
        let [stops, traced, calls] = stops(Command::new(&walker).arg(&tree));
        assert!(calls > 10_000, "{calls}");
        // A ring that is full for a moment leaves a call to the tracer, which stops the call twice.
        assert!(traced * 20 <= calls, "{traced} of {calls}");
        // Threads begin and end, and goroutines are interrupted.
        let others = stops.saturating_sub(2 * traced);
        assert!(others * 100 <= calls, "{others} of {calls}");
    }
}

#[test]
fn the_tools_of_go() {
    if !has("go") {
        return;
    }
    let place = module();
    assert_equal(&mut go(&place, &["version"]));
    // The parts of the library that these commands need are compiled once before.
    for arguments in [&["build", "-o", "../part", "-a", "./part"][..], &["vet", "./part"]] {
        go(&place, arguments).output().expect("go starts");
        assert_equal(&mut go(&place, arguments));
    }
}

/// One of a thousand runs a time was to crash or lose a call; some are enough to see a common fault.
#[test]
fn a_go_program_run_again_and_again_loses_nothing() {
    const RUNS: usize = 12;
    if !has("go") {
        return;
    }
    let place = module();
    let (walker, tree) = (walker(&place), tree(&place));
    let recording = place.path().join("recording");
    let lookups = |recording: &Path| {
        let report = report(recording);
        ["calls", "failed"].map(|name| report[0][name].as_u64().expect("a count"))
    };
    let mut first = None;
    for _ in 0..RUNS {
        let options = ["-o", recording.to_str().expect("text")];
        let output = trace(&options, Command::new(&walker).arg(&tree));
        assert!(output.status.success(), "{}", stderr(&output));
        let now = lookups(&recording);
        assert_eq!(*first.get_or_insert(now), now);
    }
}

const MUSL: &str = r#"
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
static void *ask(void *unused) {
  struct stat status; char text[99];
  for (int i = 0; i < 20; i++) {
    stat("/none", &status); lstat("/etc", &status); access("/etc", 0); close(open("/etc/passwd", O_RDONLY));
    readlink("/proc/self/exe", text, sizeof text); unlink("/none/a"); fclose(fopen("/etc/group", "r"));
    closedir(opendir("/etc")); getcwd(text, sizeof text); rename("/none/a", "/none/b"); mkdir("/none/d", 0);
    realpath("/etc/passwd", 0); chdir("/"); symlink("x", "/none/c");
  }
  return unused;
}
int main(void) {
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, ask, 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
  ask(0);
  return 0;
}
"#;

/// The same program with glibc, which also makes no call before its threads, and with musl.
#[test]
fn programs_that_make_their_first_call_in_a_thread() {
    let place = Place::new();
    let mut programs = Vec::new();
    for (index, options) in [&["-static", "-O2"][..], &["-static-pie"], &["-O2"]].iter().enumerate()
    {
        let options = [options, &["-pthread", "-D_GNU_SOURCE"][..]].concat();
        programs.push(place.program(&format!("glibc{index}"), MUSL, &options));
        if has("musl-gcc") {
            let source = place.file("musl.c", MUSL);
            let program = place.path().join(format!("musl{index}"));
            let mut gcc = Command::new("musl-gcc");
            gcc.arg("-w").args(options).arg("-o").arg(&program).arg(source);
            assert!(gcc.status().expect("musl-gcc starts").success());
            programs.push(program);
        }
    }
    for program in programs {
        assert_equal(&mut Command::new(&program));
        #[cfg(target_arch = "x86_64")]
        {
            let [_, traced, calls] = stops(&mut Command::new(&program));
            assert!(calls > 1000, "{calls}");
            assert_eq!(traced, NOTED_BY_TRACER, "{}", program.display());
        }
    }
}

/// Makes calls with unusable stack pointers, and reports whether a register has changed. The pointers lead nowhere, or
/// to a page that may not be touched. One leads to the lowest bytes of a page, and the page below may not be touched.
const NO_STACK: &str = r#"
#include <pthread.h>
#include <sys/mman.h>
char name[] = "/none/no-stack";
long ask(long stack);
asm(
  ".intel_syntax noprefix\n"
  "ask: push rbx; push rbp; push r12; push r13; push r14; push r15\n"
  "movq xmm7, rsp; mov rsp, rdi; lea rdi, [rip + name]\n"
  "mov rbx, 0x1111; mov rbp, 0x2222; mov r12, 0x3333; mov r13, 0x4444; mov r14, 0x5555; mov r15, 0x6666\n"
  "mov r8, 0x7777; mov r9, 0x8888; mov r10, 0x9999; mov rdx, 0xaaaa; mov rsi, 0xbbbb\n"
  "mov eax, 21; syscall; movq rsp, xmm7; xor eax, eax\n"
  "xor rbx, 0x1111; or rax, rbx; xor rbp, 0x2222; or rax, rbp; "
  "xor r12, 0x3333; or rax, r12; xor r13, 0x4444; or rax, r13\n"
  "xor r14, 0x5555; or rax, r14; xor r15, 0x6666; or rax, r15; xor r8, 0x7777; or rax, r8; xor r9, 0x8888; or rax, r9\n"
  "xor r10, 0x9999; or rax, r10; xor rdx, 0xaaaa; or rax, rdx; xor rsi, 0xbbbb; or rax, rsi\n"
  "pop r15; pop r14; pop r13; pop r12; pop rbp; pop rbx; ret\n"
  ".att_syntax prefix\n"
);
static void *all(void *pages) {
  long damage = 0;
  for (int i = 0; i < 50; i++) damage |= ask(16) | ask((long)pages) | ask((long)pages + 4096 + 8) | ask(-8);
  return (void *)damage;
}
int main(void) {
  char *pages = mmap(0, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(pages + 4096, 4096, PROT_READ | PROT_WRITE);
  long damage = (long)all(pages); void *other = 0;
#ifdef THREADS
  pthread_t thread; pthread_create(&thread, 0, all, pages); pthread_join(thread, &other);
  damage |= (long)other | (long)all(pages);
#endif
  return damage != 0;
}
"#;

#[test]
#[cfg(target_arch = "x86_64")]
fn a_stack_pointer_that_points_to_nothing() {
    let place = Place::new();
    for (index, options) in [&["-static"][..], &["-static", "-DTHREADS"]].iter().enumerate() {
        let options =
            [options, &["-O1", "-fcf-protection=none", "-fno-pie", "-pthread"][..]].concat();
        let program = place.program(&format!("stack{index}"), NO_STACK, &options);
        assert_equal(&mut Command::new(&program));
        let [_, traced, calls] = stops(&mut Command::new(&program));
        assert!(calls >= 200, "{calls}");
        assert_eq!(traced, NOTED_BY_TRACER);
    }
}
