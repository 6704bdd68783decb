//! Names in output for people contain nothing that a terminal would obey.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::thruway;

/// Sets a title, goes back to the line's start, ends the line, turns the direction, and is no UTF-8.
const HOSTILE: &[u8] = b"x\x1b]0;title\x07\r\n\t\x7f\xc2\x9b31m\xe2\x80\xae\xff";
/// The name in the form of `ls -b`.
const SHOWN: &str = r"x\033]0;title\a\r\n\t\177\302\23331m\342\200\256\377";
/// The name as shown after bytes that are not UTF-8 have been replaced, in clap's messages and in recordings.
const REPLACED: &str = "x\\033]0;title\\a\\r\\n\\t\\177\\302\\23331m\\342\\200\\256\u{fffd}";

/// Returns a word that contains the hostile name.
fn word(before: &str) -> OsString {
    OsString::from_vec([before.as_bytes(), HOSTILE].concat())
}

/// Fails unless the text consists of lines of printable characters.
fn assert_obeyed_by_no_terminal(text: &[u8], what: &str) {
    let text = std::str::from_utf8(text).unwrap_or_else(|_| panic!("{what}: {text:?}"));
    let is_bad = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
    assert!(!text.contains(is_bad), "{what}: {text:?}");
    assert!(!text.contains("\n\\t") && !text.contains("\r"), "{what}: {text:?}");
}

#[test]
fn every_message_escapes_the_names_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join(word(""));
    fs::write(&script, [b"#!/", HOSTILE.split(|b| *b == b'\n').next().unwrap(), b"\n"].concat())
        .unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let commands: &[(&[&str], &str)] = &[
        (&["which"], ""),
        (&["which", "/"], ""),
        (&["expand", "--ruby"], "~"),
        (&["load"], "http://127.0.0.1/"),
        (&["load"], ""),
        (&["load", "http://127.0.0.1:1/", "--body"], "@"),
        (&["load", "http://127.0.0.1:1/", "-H"], ""),
        (&["load", "http://127.0.0.1:1/", "--compare"], ""),
        (&["load", "http://127.0.0.1:1/", "--fair"], ""),
        (&["load", "http://127.0.0.1:1/", "-c"], ""),
        (&["load", "http://127.0.0.1:1/", "--mix"], "greedy=1,"),
        (&["mount", "/nowhere"], "/nowhere/"),
        (&["mount", "/etc", "/nowhere", "--policy"], ""),
        (&["mount", "status"], "/nowhere/"),
        (&["unmount"], "/nowhere/"),
        (&["serve"], "/nowhere/"),
        (&["serve", "/etc", "-b"], ""),
        (&["serve", "/etc", "--fair-by"], ""),
        (&["trace", "--"], ""),
        (&["trace", "--report"], ""),
        (&["trace", "--call"], ""),
        (&["run", "--"], ""),
        (&["pack", "info"], ""),
        (&["pack", "verify"], ""),
        (&["init"], ""),
        (&["ctl", "stats", "-S"], ""),
        (&["ctl", "stats", "-C"], "tcp://"),
        (&[], ""),
        (&[], "--"),
    ];
    for (words, before) in commands {
        let output = thruway().args(*words).arg(word(before)).output().unwrap();
        let what = format!("{words:?} {before}");
        assert!(!output.status.success(), "{what}");
        assert!(!output.stderr.is_empty(), "{what}");
        assert_obeyed_by_no_terminal(&output.stderr, &what);
    }
    let path = folder.path();
    let missing = thruway().args(["which", "--path"]).arg(path).arg(word("")).output().unwrap();
    let expected = format!(
        "thruway: {}/{SHOWN} needs /x\\033]0;title\\a\\r, which does not exist\n\n\
         hint: the script's lines end in CR LF; save it with LF line ends\n",
        path.display()
    );
    assert_eq!(String::from_utf8(missing.stderr).unwrap(), expected);
}

#[test]
fn a_pipe_gets_names_byte_for_byte_and_a_terminal_as_people_read_them() {
    let expanded = thruway().arg("expand").arg(word("/a/")).output().unwrap();
    assert_eq!(expanded.stdout, [b"/a/", HOSTILE, b"\n"].concat());
    let quoted = |text: &OsStr| OsString::from_vec([b"'", text.as_bytes(), b"'"].concat());
    let mut line = OsString::from(env!("CARGO_BIN_EXE_thruway"));
    line.push(" expand ");
    line.push(quoted(&word("/a/")));
    let terminal = Command::new("script").arg("-qec").arg(line).arg("/dev/null").output().unwrap();
    assert_eq!(String::from_utf8(terminal.stdout).unwrap(), format!("/a/{SHOWN}\r\n"));
}

#[test]
fn a_traced_command_cannot_write_to_the_report() {
    let folder = tempfile::tempdir().unwrap();
    let [page, recording] = ["page", "recording"].map(|name| folder.path().join(name));
    // The shell looks up a name from its arguments.
    let script = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21; do [ -e \"/none/$1\" ]; done";
    let output = thruway()
        .args(["trace", "--all", "-o"])
        .arg(&recording)
        .arg("--html")
        .arg(&page)
        .args(["--", "sh", "-c", script, "sh"])
        .arg(word(""))
        .output()
        .unwrap();
    let report = String::from_utf8(output.stderr).unwrap();
    assert_obeyed_by_no_terminal(report.as_bytes(), "the report");
    assert!(report.contains(REPLACED), "{report}");
    assert!(!fs::read_to_string(&page).unwrap().contains(['\u{202e}', '\u{9b}', '\x7f']));
    for options in [&["--report"][..], &["--compare"]] {
        let mut command = thruway();
        command.arg("trace").args(options).arg(&recording);
        if options == ["--compare"] {
            command.arg(&recording);
        }
        let again = command.output().unwrap();
        assert_obeyed_by_no_terminal(&again.stdout, "a report on the recording");
    }
}
