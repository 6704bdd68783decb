//! The program's and the caller's view of a start, on Linux.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use thruway_resolve::search::Posix;
use thruway_spawn::{Command, Stdio};

/// Returns a folder with programs, written by another process. A descriptor open for writing here would be
/// inherited by processes that other tests start at the same time, and the program would be busy (ETXTBSY).
fn programs(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (file, script) in files {
        let path = folder.path().join(file);
        fs::create_dir_all(path.parent().expect("a parent")).expect("its folder");
        let write = r#"printf '%s\n' "$2" > "$1"; chmod 755 "$1""#;
        let sh = Command::new("/bin/sh").args(["-c", write, "sh"]);
        let status = sh.arg(&path).arg(script).status().expect("sh starts");
        assert!(status.success());
    }
    folder
}

fn path(folder: &Path, subs: &[&str]) -> String {
    let entries = subs.iter().map(|sub| folder.join(sub).display().to_string());
    entries.collect::<Vec<_>>().join(":")
}

fn stdout(command: Command) -> String {
    let output = command.output().expect("it starts");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    String::from_utf8(output.stdout).expect("it writes text")
}

#[test]
fn arguments_reach_the_program_as_they_are() {
    let odd = ["", " ", "a b", "$HOME", "*", "\"", "'", "\\", "\n", "-n", "é"];
    let printed = stdout(Command::new("printf").arg("<%s>").args(odd));
    assert_eq!(printed, odd.map(|argument| format!("<{argument}>")).concat());
}

#[test]
fn the_environment_and_the_folder_are_the_programs_own() {
    let folder = tempfile::tempdir().unwrap();
    let sh = || Command::new("/bin/sh").args(["-c", "echo $A-$B; pwd"]).current_dir(&folder);
    let here = folder.path().display();
    let changed = sh().env("A", "1").env("B", "2").env_remove("B");
    assert_eq!(stdout(changed), format!("1-\n{here}\n"));
    let env = Command::new("/usr/bin/env").env("A", "0").env_clear().env("B", "2");
    assert_eq!(stdout(env), "B=2\n");
}

#[test]
fn the_search_takes_place_in_the_programs_path() {
    let folder = programs(&[("a/tool", "#!/bin/sh\necho a"), ("b/tool", "#!/bin/sh\necho b")]);
    let tool = |subs: &[&str]| Command::new("tool").env("PATH", path(folder.path(), subs));
    assert_eq!(stdout(tool(&["b", "a"])), "b\n");
    assert_eq!(stdout(tool(&["a", "b"])), "a\n");
    assert_eq!(stdout(tool(&["a"]).search_path(path(folder.path(), &["b"]))), "b\n");
    assert!(tool(&["none"]).spawn().unwrap_err().is_not_found());
    assert!(stdout(Command::new("echo").env_remove("PATH").arg("x")) == "x\n");
}

#[test]
fn an_empty_entry_is_the_programs_folder() {
    let folder = programs(&[("a/tool", "#!/bin/sh\necho here")]);
    let tool = Command::new("tool").env("PATH", "/none:").current_dir(folder.path().join("a"));
    assert_eq!(stdout(tool), "here\n");
}

#[test]
fn what_may_not_be_run_makes_way_for_the_next_candidate() {
    let folder = programs(&[("c/tool", "#!/bin/sh\necho c")]);
    let base = folder.path();
    fs::create_dir_all(base.join("a/tool")).unwrap();
    fs::create_dir(base.join("b")).unwrap();
    fs::write(base.join("b/tool"), "not a program").unwrap();
    fs::write(base.join("file"), "").unwrap();
    let all = path(base, &["none", "file", "a", "b", "c"]);
    assert_eq!(stdout(Command::new("tool").env("PATH", all)), "c\n");
    let error = Command::new("tool").env("PATH", path(base, &["none", "a", "b"])).spawn();
    let error = error.unwrap_err();
    assert_eq!(error.raw_os_error(), Some(13));
    assert!(!error.is_not_found());
    let a = base.join("a/tool").display().to_string();
    assert_eq!(error.to_string(), format!("cannot start {a}: Permission denied (os error 13)"));
    assert_eq!(error.tried().len(), 3);
    assert_eq!(format!("{error:#}").lines().count(), 4);
}

#[test]
fn a_cycle_of_links_ends_the_search() {
    let folder = tempfile::tempdir().unwrap();
    symlink("true", folder.path().join("true")).unwrap();
    let here = folder.path().display();
    let error = Command::new("true").env("PATH", format!("{here}:/bin")).spawn().unwrap_err();
    assert_eq!((error.tried().len(), error.raw_os_error()), (1, Some(40)));
}

#[test]
fn a_script_without_an_interpreter_is_run_by_sh_with_its_arguments() {
    let folder = programs(&[("script", "echo $0 $1")]);
    let script = folder.path().join("script");
    let printed = stdout(Command::new(&script).arg("a  b"));
    assert_eq!(printed, format!("{} a b\n", script.display()));
}

#[test]
fn a_missing_interpreter_is_told() {
    let folder = programs(&[("script", "#!/none/interpreter")]);
    let error = Command::new(folder.path().join("script")).spawn().unwrap_err();
    assert_eq!(error.tried().len(), 1);
    assert_eq!(error.raw_os_error(), Some(2));
}

#[test]
fn a_nul_is_refused_and_named() {
    for (command, message) in [
        (Command::new("a\0b"), "cannot start a\\000b: refused \"a\\000b\": a NUL byte"),
        (Command::new("true").arg("\0"), "cannot start true: a NUL byte in an argument"),
        (Command::new("true").env("A", "\0"), "cannot start true: a NUL byte in its environment"),
        (Command::new("true").current_dir("\0"), "cannot start true: a NUL byte in its folder"),
    ] {
        assert_eq!(command.spawn().unwrap_err().to_string(), message);
    }
}

#[test]
fn a_name_that_is_empty_is_not_found() {
    let error = Command::new("").spawn().unwrap_err();
    assert_eq!(error.to_string(), "an empty name is not a command");
}

#[test]
fn a_folder_that_is_not_there_is_named_as_the_cause() {
    let error = Command::new("true").current_dir("/none").spawn().unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot enter the current folder for true: No such file or directory (os error 2)"
    );
}

#[test]
fn both_outputs_are_read_however_much_they_hold() {
    let script = "i=0; while [ $i -lt 20000 ]; do echo out$i; echo err$i >&2; i=$((i+1)); done";
    let output = Command::new("sh").args(["-c", script]).output().unwrap();
    let lines = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!((lines(&output.stdout), lines(&output.stderr)), (20_000, 20_000));
}

#[test]
fn pipes_lead_to_the_program_and_back() {
    let mut child = Command::new("cat").stdin(Stdio::Pipe).stdout(Stdio::Pipe).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"there and back").unwrap();
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "there and back");
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_file_and_nothing_are_streams_too() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let command = Command::new("sh").args(["-c", "cat; echo done"]).stdin(Stdio::Null);
    let file = fs::File::create(&log).unwrap();
    assert!(command.stdout(file).status().unwrap().success());
    assert_eq!(fs::read_to_string(log).unwrap(), "done\n");
}

#[test]
fn the_end_of_a_program_is_told_as_it_was() {
    let status = |script| Command::new("sh").args(["-c", script]).status().unwrap();
    assert_eq!(status("exit 7").code(), Some(7));
    assert_eq!(status("kill -TERM $$").signal(), Some(15));
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    assert_eq!(child.try_wait().unwrap(), None);
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    assert_eq!(child.wait().unwrap().signal(), Some(9), "the status is kept");
    child.kill().unwrap();
}

#[test]
fn a_group_of_its_own_is_named_after_the_process() {
    let script = "read -r pid _ _ _ group _ < /proc/$$/stat; test $pid = $group";
    let command = || Command::new("sh").args(["-c", script]);
    assert!(command().process_group(0).status().unwrap().success());
    assert!(!command().status().unwrap().success());
}

#[test]
fn a_program_does_not_inherit_what_is_open_here() {
    let open = tempfile::NamedTempFile::new().unwrap();
    let list = "for fd in /proc/$$/fd/*; do readlink $fd; done; true";
    let printed = stdout(Command::new("sh").args(["-c", list]));
    assert!(printed.lines().count() > 2);
    assert!(!printed.contains(open.path().to_str().unwrap()), "{printed}");
}

#[test]
fn a_thousand_starts_leave_nothing_behind() {
    let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
    let before = descriptors();
    for _ in 0..500 {
        assert!(Command::new("true").status().unwrap().success());
        assert!(Command::new("thruway-no-such-program").spawn().is_err());
    }
    // Other tests run at the same time, and hold a few descriptors of their own.
    assert!(descriptors() < before + 100, "{before} before, {} after", descriptors());
}

#[test]
fn a_lister_may_do_the_search() {
    let folder = programs(&[("b/tool", "#!/bin/sh\necho b"), ("c/tool", "#!/bin/sh\necho c")]);
    fs::create_dir(folder.path().join("a")).unwrap();
    let mut posix = Posix::default();
    let tool = Command::new("tool").search_path(path(folder.path(), &["a", "b", "c"]));
    let child = tool.stdout(Stdio::Pipe).spawn_by(&mut posix).unwrap();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"b\n");
    let error = Command::new("tool").search_path("/none").spawn_by(&mut posix).unwrap_err();
    assert!(error.is_not_found());
}

#[test]
fn too_many_arguments_are_told_and_end_the_search() {
    let long = "x".repeat(200_000);
    let error = Command::new("true").arg(long).spawn().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(7));
    assert_eq!(error.tried().last().unwrap().error.raw_os_error(), Some(7));
}

#[test]
fn a_path_of_a_hundred_thousand_entries_is_searched_to_its_end() {
    let entries: String = (0..100_000).map(|n| format!("/none{n}:")).collect();
    let output = Command::new("true").search_path(entries + "/bin").output().unwrap();
    assert!(output.status.success());
}
