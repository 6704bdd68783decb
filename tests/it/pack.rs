//! `thruway pack`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::program::Program;
use crate::{stderr, stdout, thruway};

fn program() -> Program {
    Program::new(&[("main.rb", "require 'a'\nputs 'ran'\n"), ("lib/a.rb", "A = 1\n")])
}

/// `thruway pack build` of the program.
fn build(program: &Program, pack: &Path) -> Output {
    let mut command = thruway();
    command.args(["pack", "build", "-o"]).arg(pack).args(["--", "ruby", "-I"]);
    command.arg(program.path("lib")).arg(program.path("main.rb")).output().expect("it starts")
}

fn pack(arguments: &[&str], pack: &Path) -> Output {
    thruway().arg("pack").args(arguments).arg(pack).output().expect("it starts")
}

#[test]
fn a_pack_is_built_shown_verified_and_used() {
    let program = program();
    let built = build(&program, &program.pack());
    assert!(built.status.success(), "{}", stderr(&built));
    assert!(stdout(&built).starts_with("ran\n"), "{}", stdout(&built));
    let shown = pack(&["info"], &program.pack());
    assert!(stdout(&shown).contains("features"), "{}", stdout(&shown));
    assert!(!stdout(&shown).contains("stale: "), "{}", stdout(&shown));
    let verified = pack(&["verify"], &program.pack());
    assert!(stdout(&verified).ends_with(" entries, none damaged\n"), "{}", stdout(&verified));
    let used = program.run(&["--explain"]);
    assert!(stderr(&used).contains(" from the pack, 0 compiled"), "{}", stderr(&used));
}

/// QEMU before version 8 does not know the flag for a descriptor.
#[test]
fn a_kernel_that_refuses_descriptors_of_new_processes_builds_one_too() {
    let program = program();
    let mut strace = Command::new("strace");
    strace.args(["-qq", "-o", "/dev/null", "-e", "trace=clone"]);
    strace.args(["-e", "inject=clone:error=EINVAL:when=1", env!("CARGO_BIN_EXE_thruway")]);
    strace.args(["pack", "build", "-o"]).arg(program.pack()).args(["--", "ruby", "-I"]);
    strace.arg(program.path("lib")).arg(program.path("main.rb"));
    let built = strace.output().expect("scripts/setup installs it");
    assert!(built.status.success(), "{}", stderr(&built));
    assert!(stdout(&built).starts_with("ran\n"), "{}", stdout(&built));
}

#[test]
fn what_is_stale_is_named() {
    let program = program();
    build(&program, &program.pack());
    program.write("lib/a.rb", "A = 2\n");
    let shown = pack(&["info"], &program.pack());
    let line = format!("stale: {}\n", program.path("lib/a.rb").display());
    assert!(stdout(&shown).contains(&line), "{}", stdout(&shown));
    let document = pack(&["info", "--json"], &program.pack());
    let document: serde_json::Value = serde_json::from_str(stdout(&document)).unwrap();
    assert_eq!(document["stale"].as_array().map(Vec::len), Some(1), "{document:#}");
    let features = document["kinds"].as_array().unwrap();
    let features = features.iter().find(|kind| kind["name"] == "features").unwrap();
    assert_eq!(features["stale"], 1);
}

#[test]
fn a_file_that_was_touched_is_read_once_more() {
    let program = program();
    build(&program, &program.pack());
    let text = fs::read_to_string(program.path("lib/a.rb")).unwrap();
    program.write("lib/a.rb", &text);
    program.age();
    let compiled = |options: &[&str]| {
        let output = program.run(options);
        stderr(&output).lines().filter(|line| line.contains("changed since: ")).count()
    };
    assert_eq!(compiled(&["--explain", "--digest"]), 0);
    assert_eq!(compiled(&["--explain"]), 0, "the pack has its new stamp");
}

#[test]
fn a_build_that_is_interrupted_leaves_nothing() {
    use std::os::unix::process::CommandExt;
    let program = program();
    program.write("main.rb", "require 'a'\n$stdout.sync = true\nputs 'ready'\nsleep\n");
    for signal in ["TERM", "INT"] {
        // In the background of a script, programs ignore interrupts.
        let mut command = Command::new("env");
        command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_thruway"), "pack", "build"]);
        command.arg("-o").arg(program.pack()).args(["--", "ruby", "-I"]);
        command.arg(program.path("lib")).arg(program.path("main.rb")).process_group(0);
        let command = command.stdout(std::process::Stdio::piped());
        let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut said = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut said, &mut line).unwrap();
        assert_eq!(line, "ready\n");
        // An interrupt from a terminal reaches all processes of the group, another signal only this one.
        let to = if signal == "INT" { format!("-{}", child.id()) } else { child.id().to_string() };
        let sent = Command::new("kill").args(["-s", signal, "--", &to]).status();
        assert!(sent.unwrap().success());
        assert_eq!(child.wait().unwrap().code(), Some(2));
        let left = fs::read_dir(program.pack().parent().unwrap()).unwrap().count();
        assert_eq!(left, 1, "the program, after {signal}");
    }
}

#[test]
fn what_a_killed_build_left_goes_with_the_next_one() {
    let program = program();
    let new = program.pack().with_added_extension("new");
    let partial = new.with_added_extension("partial");
    let is_there = |path: &Path| fs::metadata(path).is_ok();
    program.write("main.rb", "exit 1\n");
    // The file contains as much of a pack as its writer had written.
    fs::write(&partial, [&b"THRUPACK"[..], &[0; 100]].concat()).unwrap();
    fs::write(&new, "THRUPACK").unwrap();
    assert_eq!(build(&program, &program.pack()).status.code(), Some(2));
    assert!(!is_there(&new) && !is_there(&partial));
    // A locked file belongs to a writer that is alive.
    fs::write(&partial, "THRUPACK").unwrap();
    let writer = fs::File::open(&partial).unwrap();
    writer.lock().unwrap();
    assert_eq!(build(&program, &program.pack()).status.code(), Some(2));
    assert!(is_there(&partial));
}

#[test]
fn a_folder_that_the_user_names_is_made_as_the_umask_says() {
    use std::os::unix::fs::PermissionsExt;
    let program = program();
    let shared = program.path("shared/packs");
    assert!(build(&program, &shared.join("a.pack")).status.success());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&shared), mode(shared.parent().unwrap()));
}

#[test]
fn a_checkout_with_other_times_uses_the_pack_by_its_digests() {
    let program = program();
    build(&program, &program.pack());
    for file in ["main.rb", "lib/a.rb"] {
        let text = fs::read_to_string(program.path(file)).unwrap();
        fs::remove_file(program.path(file)).unwrap();
        program.write(file, &text);
    }
    let compiled = |options| {
        let output = program.run_with(&copy_of(&program.pack()), options);
        stderr(&output).lines().filter(|line| line.contains("changed since: ")).count()
    };
    assert_eq!((compiled(&["--explain"]), compiled(&["--explain", "--digest"])), (1, 0));
    program.write("lib/a.rb", "A = 3\n");
    assert_eq!(compiled(&["--explain", "--digest"]), 1);
}

/// Copies a pack, so that a boot may replace the copy and leave the original alone.
fn copy_of(pack: &Path) -> std::path::PathBuf {
    let copy = pack.with_extension("copy");
    let _ = fs::remove_file(&copy);
    fs::copy(pack, &copy).expect("it is copied");
    copy
}

#[test]
fn a_flipped_bit_is_found() {
    let program = program();
    build(&program, &program.pack());
    let mut bytes = fs::read(program.pack()).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let damaged = program.path("damaged.pack");
    fs::write(&damaged, bytes).unwrap();
    let verified = pack(&["verify"], &damaged);
    assert_eq!(verified.status.code(), Some(1));
    assert!(stdout(&verified).starts_with("damaged: "), "{}", stdout(&verified));
}

#[test]
fn a_pack_takes_no_place_of_another_file() {
    let program = program();
    for place in ["main.rb", "other.pack.new"] {
        program.write("other.pack.new", "mine");
        let before = fs::read(program.path(place)).unwrap();
        let built = build(&program, &program.path(place.trim_end_matches(".new")));
        assert_eq!((stdout(&built), built.status.code()), ("", Some(2)));
        assert!(stderr(&built).contains(&format!("{place} is not a pack")), "{}", stderr(&built));
        assert_eq!(fs::read(program.path(place)).unwrap(), before);
    }
}

#[test]
fn a_command_that_fails_leaves_the_pack_as_it_was() {
    let program = program();
    build(&program, &program.pack());
    let before = fs::read(program.pack()).unwrap();
    program.write("main.rb", "require 'a'\nexit 3\n");
    let built = build(&program, &program.pack());
    assert_eq!(built.status.code(), Some(2));
    assert!(stderr(&built).contains("the pack was left unchanged"), "{}", stderr(&built));
    assert_eq!(fs::read(program.pack()).unwrap(), before);
    let left = fs::read_dir(program.pack().parent().unwrap()).unwrap().count();
    assert_eq!(left, 2, "the program and the pack");
}

#[test]
fn what_is_no_pack_is_said_to_be_none() {
    let program = program();
    for (path, words) in [("main.rb", "not a pack"), ("nowhere", "No such file")] {
        let shown = pack(&["info"], &program.path(path));
        assert_eq!(shown.status.code(), Some(2));
        assert!(stderr(&shown).contains(words), "{}", stderr(&shown));
    }
    let built = thruway().args(["pack", "build", "-o"]).arg(program.pack()).arg("true").output();
    assert!(stderr(&built.unwrap()).contains("the command wrote no pack"));
}

/// Creates a program with files of all kinds, which print a line when they run.
fn library() -> Program {
    let files = [
        ("main.rb", "require 'a'\nrequire 'yaml'\nputs YAML.load_file(\"#{__dir__}/lib/c.yml\")\n"),
        ("lib/a.rb", "require 'deep/b'\nputs 'a ran'\n"),
        ("lib/deep/b.rb", "BEGIN { puts 'b ran' }\nB = 1\n"),
        ("lib/wrong.rb", "def (\n"),
        ("lib/nothing.rb", "# nothing\n"),
        ("lib/c.yml", "c: [1]\n"),
        ("lib/wrong.yaml", "c: [1\n"),
    ];
    Program::new(&files)
}

/// `thruway pack build --compile` of a path of the program, and other words.
fn compile(program: &Program, path: &str, more: &[&str]) -> Output {
    let mut command = thruway();
    command.current_dir(program.path("")).args(["pack", "build", "-o"]).arg(program.pack());
    command.args(["--compile", path]).args(more).output().expect("it starts")
}

#[test]
fn files_are_compiled_without_being_run() {
    let program = library();
    let built = compile(&program, "lib", &[]);
    assert!(built.status.success(), "{}", stderr(&built));
    assert!(!stdout(&built).contains(" ran\n"), "{}", stdout(&built));
    let skipped: Vec<_> = stderr(&built).lines().filter(|line| line.contains("skipped ")).collect();
    assert_eq!(skipped.len(), 2, "{skipped:?}");
    assert!(skipped[0].contains("lib/wrong.rb: 1: syntax error"), "{skipped:?}");
    assert!(skipped[1].contains("lib/wrong.yaml: "), "{skipped:?}");
    let used = program.run(&["--explain"]);
    assert_eq!(stdout(&used), stdout(&program.plain()));
    let compiled: Vec<_> = stderr(&used).lines().filter(|line| line.contains("lib/")).collect();
    assert!(compiled.iter().all(|line| !line.contains("/app/lib/")), "{compiled:?}");
}

#[test]
fn a_pack_holds_what_is_compiled_and_what_a_command_loads() {
    let program = library();
    let main = program.path("main.rb");
    let lib = program.path("lib");
    let command = ["--", "ruby", "-I", lib.to_str().unwrap(), main.to_str().unwrap()];
    let built = compile(&program, "lib/nothing.rb", &command);
    assert!(stdout(&built).starts_with("b ran\na ran\n"), "{}", stdout(&built));
    let used = program.run(&["--explain"]);
    assert!(stderr(&used).contains(" from the pack, 0 compiled"), "{}", stderr(&used));
}

#[test]
fn what_cannot_be_compiled_is_named() {
    let program = library();
    let missing = compile(&program, "none", &[]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(stderr(&missing).contains("cannot compile none: No such file"), "{}", stderr(&missing));
    let no_bundle = compile(&program, "lib", &["--compile-gems"]);
    assert_eq!(no_bundle.status.code(), Some(2));
    let told = stderr(&no_bundle);
    assert!(
        told.contains("cannot list the gems of the bundle: Could not locate Gemfile"),
        "{told}"
    );
    assert!(fs::metadata(program.pack()).is_err(), "no pack is left");
}
