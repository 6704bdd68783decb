//! Rare cases: names that are not text or too long, folders that cannot be written, programs with set-user-ID bits.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::Value;

use super::{Place, has, trace};
use crate::{stderr, stdout, thruway};
use thruway_testing::skipped;

#[test]
fn names_that_are_no_text_are_in_every_report() {
    if !has("python3") {
        return;
    }
    const SHOWN: &str = "/mark/\u{fffd}";
    let place = Place::new();
    let at = |name: &str| place.path().join(name).display().to_string();
    let (recording, page, events) = (at("recording"), at("page"), at("events"));
    let ask = "import os\nfor i in range(500): os.path.exists(b'/mark/\\xff')";
    let mut python = Command::new("python3");
    python.args(["-S", "-c", ask]);
    let options = ["-o", &recording, "--html", &page, "--perfetto", &events];
    let output = trace(&options, &mut python);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains(SHOWN), "{}", stderr(&output));
    for (options, file) in [(&["--all"][..], None), (&["--json"], None), (&[], Some(&page))] {
        let shown = thruway().args(["trace", "--from", &recording]).args(options).output();
        let shown = shown.expect("thruway starts");
        let text = file.map_or_else(
            || stdout(&shown).to_owned(),
            |file| std::fs::read_to_string(file).expect("a page is text"),
        );
        assert!(text.contains('\u{fffd}'), "{options:?}");
    }
    let text = std::fs::read_to_string(&events).expect("events are text");
    let events: Value = serde_json::from_str(&text).expect("JSON");
    let events = events["traceEvents"].as_array().expect("a list");
    assert_eq!(events.iter().filter(|event| event["args"]["name"] == SHOWN).count(), 500);
}

#[test]
fn nothing_is_written_where_the_command_runs() {
    // Even root cannot create a file in /proc.
    let mut pwd = Command::new("pwd");
    pwd.current_dir("/proc");
    let output = trace(&[], &mut pwd);
    assert_eq!((stdout(&output), output.status.code()), ("/proc\n", Some(0)));
    let output = trace(&["-o", "recording"], &mut pwd);
    assert_eq!((stdout(&output), output.status.code()), ("", Some(2)));
    assert!(
        stderr(&output).starts_with("thruway: cannot write recording: "),
        "{}",
        stderr(&output)
    );
}

/// Returns a command without root's rights: a program with root's set-user-ID bit, which prints its user.
pub(super) fn identity(place: &Place, before: &[&str]) -> Command {
    let program = place.path().join("id");
    thruway_testing::copy_program("/usr/bin/id", &program);
    for (path, mode) in [(place.path(), 0o755), (&program, 0o4755)] {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path, mode).expect("it is ours");
    }
    let mut user = Command::new("setpriv");
    user.args(["--reuid=65534", "--clear-groups"]).args(before).arg(program).arg("-u");
    user
}

/// Returns the output of a command that can be started and succeeds.
fn output_of(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(stdout(&output).to_owned())
}

#[test]
fn a_set_user_id_program_runs_without_the_privilege() {
    let place = Place::new();
    let thruway = env!("CARGO_BIN_EXE_thruway");
    let traced = identity(&place, &[thruway, "trace", "--"]).output().ok();
    let traced = traced.filter(|output| output.status.success());
    match (output_of(&mut identity(&place, &[])).as_deref(), traced) {
        (Some("0\n"), Some(traced)) => {
            assert_eq!(stdout(&traced), "65534\n");
            let told = format!(
                "without the rights of their set-user-ID bits, because they were traced: {}",
                place.path().join("id").display()
            );
            let shown = stderr(&traced).split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(shown.contains(&told), "{shown}");
        }
        _ => skipped("set-user-ID takes root, a file system with it, and a readable binary"),
    }
}
