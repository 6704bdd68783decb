use crate::{run, stdout, thruway};

const CHECKS: [&str; 9] = [
    "ruby",
    "gem",
    "boot",
    "fuse",
    "fuse passthrough",
    "fuse over io_uring",
    "trace by ptrace",
    "inotify",
    "descriptors",
];

/// Returns the command for a user without a server that keeps certificates.
fn doctor() -> std::process::Command {
    let mut doctor = thruway();
    doctor.arg("doctor").env("XDG_STATE_HOME", "/nonexistent").env_remove("STATE_DIRECTORY");
    doctor
}

#[test]
fn the_doctor_says_of_each_thing_how_it_is_and_the_cure_of_what_is_not_well() {
    let output = doctor().arg("--json").output().expect("it starts");
    let document: serde_json::Value = serde_json::from_str(stdout(&output)).expect("it is JSON");
    let checks = document["checks"].as_array().expect("a list");
    let names: Vec<_> = checks.iter().map(|check| check["name"].as_str().unwrap()).collect();
    assert_eq!(names, CHECKS);
    for check in checks {
        assert_eq!(check["state"] == "ok", check["cure"].is_null(), "{check}");
        // The gem is not released: the name leads to another gem, or to none.
        assert!(!check.to_string().contains("gem install thruway"), "{check}");
    }
    let is_broken = checks.iter().any(|check| check["state"] == "no");
    assert_eq!(output.status.code(), Some(i32::from(is_broken)));
}

#[test]
fn a_tracer_that_worked_is_told() {
    let output = run(&["doctor"]);
    let line = stdout(&output).lines().find(|line| line.contains("trace by ptrace"));
    assert_eq!(line, Some("ok     trace by ptrace     a command was traced"));
}

/// Runs the doctor with a script as `ruby`.
fn with_ruby(script: &str) -> std::process::Output {
    let folder = tempfile::tempdir().expect("a folder");
    let ruby = folder.path().join("ruby");
    thruway_testing::write_program(&ruby, format!("#!/bin/sh\n{script}\n"));
    thruway().arg("doctor").env("PATH", folder.path()).output().expect("it starts")
}

#[test]
fn a_ruby_that_is_too_old_is_told_with_its_cure() {
    let output = with_ruby("echo 2.7; echo ruby 2.7.4");
    let told = "no     ruby                ruby 2.7.4: too old\n                           cure: install Ruby 3.1 ";
    assert!(stdout(&output).starts_with(told), "{}", stdout(&output));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn an_extension_that_does_not_load_is_told_with_ruby_s_words() {
    let own = std::process::Command::new("ruby")
        .args(["-e", "print RUBY_VERSION[/\\A\\d+\\.\\d+/]"])
        .output()
        .expect("Ruby starts");
    let version = stdout(&own);
    let output = with_ruby(&format!(
        "case \"$*\" in *VERSION*) echo {version}; echo another;; *) echo not mine >&2; exit 1;; esac"
    ));
    let told = "no     boot                the extension does not load: not mine\n";
    assert!(stdout(&output).contains(told), "{}", stdout(&output));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn without_ruby_the_rest_is_still_told() {
    let empty = tempfile::tempdir().expect("a folder");
    let output = thruway().arg("doctor").env("PATH", empty.path()).output().expect("it starts");
    assert!(stdout(&output).starts_with("less   ruby                not on PATH"), "{output:?}");
    assert!(stdout(&output).contains(" inotify "));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn the_cure_of_a_missing_gem_names_no_gem_that_is_not_ours() {
    let output = with_ruby("echo 9.9; echo a Ruby to come");
    let cure = "cure: make build in a checkout, or gem install of the .gem file of this version";
    assert!(stdout(&output).contains(cure), "{}", stdout(&output));
}
