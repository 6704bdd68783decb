//! The program's and the caller's view of a start, on Windows.
//!
//! Comments tell where Wine's `cmd.exe` differs from Windows'. The command lines themselves are tested as
//! texts in `command_line`.
#![cfg(windows)]

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use thruway_resolve::search::{Listings, Nt};
use thruway_spawn::{Command, Rules, Stdio};

/// Returns the path of the example that prints its arguments, which cargo builds with the tests.
fn print_arguments() -> PathBuf {
    let tests = std::env::current_exe().expect("this program has a path");
    let profile = tests.parent().and_then(Path::parent).expect("it lies in deps");
    profile.join("examples/print_arguments.exe")
}

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (file, text) in files {
        let path = folder.path().join(file);
        fs::create_dir_all(path.parent().expect("a parent")).expect("its folder");
        match *text {
            "program" => drop(fs::copy(print_arguments(), path).expect("a program")),
            text => fs::write(path, text.replace('\n', "\r\n")).expect("a file"),
        }
    }
    folder
}

fn path(folder: &Path, subs: &[&str]) -> String {
    let entries = subs.iter().map(|sub| folder.join(sub).display().to_string());
    entries.collect::<Vec<_>>().join(";")
}

fn stdout(command: Command) -> String {
    let output = command.output().expect("it starts");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    String::from_utf8(output.stdout).expect("it writes text").replace('\r', "")
}

fn shown(arguments: &[&str]) -> String {
    arguments.iter().map(|argument| format!("{argument:?}\n")).collect()
}

const ODD: [&str; 14] = [
    "", " ", "a b", "%PATH%", "*", "\"", "\\", "a\\\\\"b", "a b\\", "a\nb", "é😀", "^&|<>", "'",
    "\t",
];

#[test]
fn arguments_reach_the_program_as_they_are() {
    let printed = stdout(Command::new(print_arguments()).args(ODD));
    assert_eq!(printed, shown(&ODD));
}

#[test]
fn the_first_suffix_in_the_first_folder_is_started() {
    let folder = folder(&[("a/Tool.cmd", "@echo cmd"), ("b/tool.exe", "program")]);
    let tool = |subs: &[&str]| {
        Command::new("tool")
            .rules(Rules::cmd(b".COM;.EXE;.BAT;.CMD"))
            .search_path(path(folder.path(), subs))
    };
    assert_eq!(stdout(tool(&["none", "a", "b"])), "cmd\n");
    assert_eq!(stdout(tool(&["b", "a"]).arg("x")), "\"x\"\n");
    let error = tool(&["none"]).spawn().unwrap_err();
    assert!(error.is_not_found());
    assert_eq!(error.to_string(), "tool not found in 1 folder");
}

#[test]
fn a_batch_file_gets_its_arguments_and_no_other_program_starts() {
    let folder = folder(&[("show.bat", "@echo off\necho 1[%~1]\necho 2[%~2]\n")]);
    let show = |argument: &str| {
        stdout(Command::new(folder.path().join("show.bat")).arg(argument).arg("z"))
    };
    for argument in ["a", "a b", "a-b_c.d", "a=b;c,d", "a(b)", "a'b", "a\\b"] {
        assert_eq!(show(argument), format!("1[{argument}]\n2[z]\n"), "{argument:?}");
    }
}

#[test]
fn a_batch_file_may_hand_its_arguments_on() {
    let folder = folder(&[("print.exe", "program"), ("on.cmd", "@\"%~dp0print.exe\" %*\n")]);
    // Wine's cmd.exe expands a variable despite `%%cd:~,%`, so there is no per cent sign here.
    let arguments = ["", "a b", "é😀", "a\"b", "a\\", "&", "x&y|z", "^", "'", "a,b;c=d"];
    let on = Command::new("on").search_path(folder.path()).args(arguments);
    assert_eq!(stdout(on), shown(&arguments));
}

#[test]
fn a_batch_file_cannot_be_made_to_start_another_program() {
    let folder = folder(&[("quiet.bat", "@exit /b 0\n"), ("sub/x", "")]);
    let mark = folder.path().join("mark");
    let start = format!("echo x>{}", mark.display());
    for argument in [
        format!("&{start}"),
        format!("\"&{start}"),
        format!("\"&{start}&\""),
        format!("\\\"&{start}&\""),
        format!("a\" & {start} & \"b"),
        format!("%CMDCMDLINE:~-1%&{start}"),
        format!("|{start}"),
        format!("^&{start}"),
    ] {
        let quiet = Command::new(folder.path().join("quiet.bat")).arg(&argument);
        assert!(quiet.status().is_ok());
        assert!(fs::metadata(&mark).is_err(), "{argument}");
    }
}

#[test]
fn what_cannot_be_passed_to_a_batch_file_is_refused() {
    let folder = folder(&[("show.bat", "@echo [%~1]\n")]);
    let error = |argument: &str| {
        let show = Command::new(folder.path().join("show.bat")).arg(argument);
        show.spawn().unwrap_err().to_string()
    };
    assert!(error("a\nb").contains("CVE-2024-24576"), "{}", error("a\nb"));
    assert!(error("a\rb").contains("CVE-2024-24576"));
    assert!(error("a\0b").ends_with("a NUL in an argument"));
    assert!(error(&"a".repeat(9000)).ends_with("longer than 8191 units"));
}

#[test]
fn a_name_that_windows_would_shorten_starts_nothing() {
    let folder = folder(&[("show.bat", "@echo shown\n")]);
    for name in ["show.bat.", "show.bat ", "show.bat. .", "show.bat::$DATA"] {
        let error = Command::new(folder.path().join(name)).rules(Rules::rust()).spawn();
        assert!(error.unwrap_err().is_not_found(), "{name}");
    }
}

#[test]
fn a_file_that_is_no_program_ends_the_search_of_cmd() {
    let folder = folder(&[("a/tool.exe", "no program"), ("b/tool.exe", "program")]);
    let tool = |rules| {
        Command::new("tool").rules(rules).search_path(path(folder.path(), &["a", "b"])).spawn()
    };
    let error = tool(Rules::cmd(b".EXE;.BAT;.COM")).unwrap_err();
    assert_eq!((error.raw_os_error(), error.tried().len()), (Some(193), 1));
    let zig = tool(Rules::zig(b".EXE;.BAT;.COM")).unwrap_err();
    assert_eq!((zig.raw_os_error(), zig.tried().len()), (Some(193), 1));
}

#[test]
fn a_file_that_is_no_program_is_passed_over_by_zig_unless_it_is_an_exe() {
    let folder = folder(&[("a/tool", "no program"), ("b/tool.exe", "program")]);
    let rules = Rules::zig(b".EXE;.BAT;.COM").current_first(false);
    let tool = Command::new("tool").rules(rules).arg("z");
    assert_eq!(stdout(tool.search_path(path(folder.path(), &["a", "b"]))), "\"z\"\n");
}

/// There is no other program beside the one that runs the tests, but its folder exists.
#[test]
fn rust_searches_the_new_path_then_its_own_folders_then_its_own_path() {
    let plan =
        Command::new("x").rules(Rules::rust()).env("PATH", r#"C:\a;"C:\b;c""#).plan().unwrap();
    let bases: Vec<_> = plan.bases().iter().map(String::from_utf8_lossy).collect();
    let own = std::env::current_exe().unwrap();
    let own = own.parent().unwrap().to_string_lossy();
    assert_eq!(bases[..3], [r"C:\a", r"C:\b;c", &own]);
    assert!(bases[3].eq_ignore_ascii_case(r"C:\windows\system32"), "{bases:?}");
    assert!(bases[4].eq_ignore_ascii_case(r"C:\windows"), "{bases:?}");
    let path = std::env::var("PATH").unwrap();
    let last = path.split(';').rfind(|folder| !folder.is_empty()).unwrap();
    assert!(bases[3..].iter().any(|base| base.eq_ignore_ascii_case(last)), "{bases:?}");
    assert!(Command::new("cmd").rules(Rules::rust()).env("PATH", "").arg("/c").status().is_ok());
    let given = Command::new("x").rules(Rules::rust()).search_path(r"C:\a").plan().unwrap();
    assert_eq!(given.bases().len(), 1);
}

#[test]
fn a_document_is_not_opened() {
    let folder = folder(&[("a/tool.vbs", "MsgBox 1"), ("b/tool.exe", "program")]);
    let rules = Rules::cmd(b".VBS;.EXE;.BAT");
    let tool = Command::new("tool").rules(rules).search_path(path(folder.path(), &["a", "b"]));
    assert_eq!(tool.spawn().unwrap_err().raw_os_error(), Some(193));
}

#[test]
fn the_environment_and_the_folder_are_the_programs_own() {
    let folder = folder(&[("show.cmd", "@echo %A%-%B%-%C%\n@cd\n")]);
    let here = folder.path().display().to_string();
    let show = Command::new("show").search_path(&here).current_dir(&folder);
    let changed = show.env("A", "1").env("b", "2").env("B", "3").env_remove("c");
    assert_eq!(stdout(changed), format!("1-3-\n{here}\n"));
    let cleared = Command::new(folder.path().join("show.cmd")).env_clear().env("B", "2");
    assert!(stdout(cleared).starts_with("-2-\n"));
}

#[test]
fn pipes_lead_to_the_program_and_back() {
    let folder = folder(&[("echo.cmd", "@set /p A=\n@echo got %A%\n")]);
    let echo = Command::new(folder.path().join("echo.cmd"));
    let mut child = echo.stdin(Stdio::Pipe).stdout(Stdio::Pipe).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"a line\r\n").unwrap();
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text.trim_end(), "got a line");
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_end_of_a_program_is_told_as_it_was() {
    let folder = folder(&[("seven.cmd", "@exit 7\n")]);
    let seven = Command::new(folder.path().join("seven.cmd"));
    assert_eq!(seven.status().unwrap().code(), Some(7));
    let group = Command::new(folder.path().join("seven.cmd")).process_group(5).spawn();
    assert!(group.unwrap_err().to_string().contains("process group"));
}

#[test]
fn listings_may_do_the_search() {
    let folder = folder(&[("a/other.exe", ""), ("b/tool.exe", "program")]);
    let mut listings = Listings::new(Nt::of_this_process().unwrap());
    let tool = Command::new("tool").search_path(path(folder.path(), &["a", "b"])).arg("x");
    for _ in 0..2 {
        let child = tool.spawn_by(&mut listings).unwrap();
        assert!({ child }.wait().unwrap().success());
    }
}

#[test]
fn a_folder_that_is_not_there_is_named_as_the_cause() {
    let file = folder(&[("file", "")]);
    for missing in ["none", "file"] {
        let command = Command::new(print_arguments()).current_dir(file.path().join(missing));
        let error = command.spawn().unwrap_err();
        assert!(error.to_string().starts_with("cannot enter the current folder for "), "{error}");
        assert!(!error.is_not_found());
    }
    assert!(Command::new(print_arguments()).current_dir(file.path()).status().is_ok());
}

#[test]
fn zig_searches_the_folder_in_which_the_program_is_to_start() {
    let folder = folder(&[("a/tool.exe", "program"), ("a/sub/deep.exe", "program")]);
    let start = |name: &str| {
        let command = Command::new(name).rules(Rules::zig(b".EXE")).search_path("");
        command.current_dir(folder.path().join("a")).arg("x").output()
    };
    for name in ["tool", r"sub\deep", "sub/deep.exe"] {
        let output = start(name).expect(name);
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim_end(), "\"x\"", "{name}");
    }
    assert!(start("deep").unwrap_err().is_not_found());
}
