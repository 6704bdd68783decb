//! `thruway preload`, and `--preload` where there is nothing to fork. What forks are is tested in gem/test/preload.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::{stderr, stdout, thruway};

/// A folder with a place for templates.
fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

fn run(folder: &TempDir, words: &[&str]) -> Output {
    let mut command: Command = thruway();
    for other in ["CI", "THRUWAY_PRELOAD", "THRUWAY_BOOT"] {
        command.env_remove(other);
    }
    command.args(words).current_dir(folder.path()).env("XDG_RUNTIME_DIR", folder.path());
    command.output().expect("it starts")
}

#[test]
fn without_templates_there_is_nothing_to_list_or_to_stop() {
    let folder = folder();
    assert_eq!(stdout(&run(&folder, &["preload", "status"])), "");
    assert_eq!(stdout(&run(&folder, &["preload", "status", "--json"])), "[]\n");
    assert!(run(&folder, &["preload", "stop", "--all"]).status.success());
}

#[test]
fn a_place_that_others_may_enter_is_not_used() {
    let folder = folder();
    run(&folder, &["preload", "status"]);
    let place = folder.path().join("thruway/preload");
    std::fs::set_permissions(place, Permissions::from_mode(0o755)).unwrap();
    let output = run(&folder, &["preload", "status"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("no folder for the sockets of templates"),
        "{}",
        stderr(&output)
    );
    // The command runs all the same.
    let output = run(&folder, &["run", "--preload", "--explain", "--", "sh", "-c", "exit 3"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("a template cannot be asked"), "{}", stderr(&output));
}

#[test]
fn what_is_no_ruby_runs_as_always() {
    let folder = folder();
    let script = ["run", "--preload", "--explain", "--", "sh", "-c", "echo $1; exit 5", "sh", "a"];
    let output = run(&folder, &script);
    assert_eq!((output.status.code(), stdout(&output)), (Some(5), "a\n"));
    assert!(stderr(&output).contains("there is no template yet"), "{}", stderr(&output));
    let missing = run(&folder, &["run", "--preload", "--", "no-such-command"]);
    assert_eq!(missing.status.code(), Some(127));
}

#[test]
fn what_forbids_a_template_is_said() {
    let folder = folder();
    for (variable, option, reason) in [
        (Some(("THRUWAY_PRELOAD", "0")), None, "THRUWAY_PRELOAD is 0"),
        (Some(("CI", "true")), None, "CI is set"),
        (None, Some("--frozen"), "a frozen pack asks no questions"),
        // An impossible request is reported before an unwanted one.
        (Some(("CI", "true")), Some("--portable"), "the portable mode cannot observe"),
    ] {
        let mut command = thruway();
        command.env_remove("CI").env_remove("THRUWAY_PRELOAD").current_dir(folder.path());
        command.envs(variable).env("XDG_RUNTIME_DIR", folder.path());
        command.args(["run", "--preload", "--explain"]).args(option).args(["--", "true"]);
        let output = command.output().expect("it starts");
        assert!(output.status.success());
        assert!(stderr(&output).contains(reason), "{}", stderr(&output));
    }
    assert!(std::fs::metadata(folder.path().join("thruway")).is_err(), "nothing was made");
}

#[test]
fn further_files_are_named_to_the_boot() {
    let folder = folder();
    let words = ["run", "--preload-file", "a", "--preload-file", "/b", "--", "sh", "-c"];
    let output = run(&folder, &[&words[..], &["echo $THRUWAY_PRELOAD_FILES"]].concat());
    let (said, here) = (stdout(&output), folder.path().file_name().unwrap().to_string_lossy());
    assert!(said.starts_with('/') && said.ends_with(&format!("/{here}/a:/b\n")), "{said}");
}
