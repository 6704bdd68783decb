use std::path::Path;
use std::process::Output;

use crate::{run, stdout};

fn which(arguments: &[&str]) -> Output {
    run(&[&["which"], arguments].concat())
}

/// A tree with the given files, all of them programs.
fn tree(files: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for file in files {
        let path = folder.path().join(file);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("its folder");
        std::fs::write(&path, "").expect("a file");
        make_runnable(&path);
    }
    folder
}

#[cfg(unix)]
fn make_runnable(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(path, mode).expect("its mode");
}

#[cfg(windows)]
fn make_runnable(_: &Path) {}

#[cfg(target_os = "linux")]
mod linux {
    use super::*;
    use crate::stderr;

    #[test]
    fn the_first_in_the_path_is_printed() {
        let folder = tree(&["a/tool", "b/tool", "b/other"]);
        let path = ["none", "a", "b"].map(|sub| folder.path().join(sub).display().to_string());
        let [_, a, b] = &path;
        let found = which(&["--path", &path.join(":"), "tool", "other"]);
        assert_eq!(stdout(&found), format!("{a}/tool\n{b}/other\n"));
        let all = which(&["-a", "--count", "--path", &path.join(":"), "tool"]);
        assert_eq!(stdout(&all), format!("{a}/tool\n{b}/tool\n3 look-ups\n"));
    }

    #[test]
    fn a_name_that_is_not_there_gives_1_and_the_reason() {
        let folder = tree(&["a/tool"]);
        std::fs::write(folder.path().join("a/note"), "").unwrap();
        let path = folder.path().join("a").display().to_string();
        let missing = which(&["--path", &path, "tool", "nothing"]);
        assert_eq!(missing.status.code(), Some(1));
        assert_eq!(stdout(&missing), format!("{path}/tool\n"));
        assert_eq!(stderr(&missing), "thruway: nothing not found in 1 folder\n");
        let denied = which(&["--path", &path, "note"]);
        assert_eq!(stderr(&denied), format!("thruway: {path}/note may not be run\n"));
        assert_eq!(denied.status.code(), Some(1));
        std::fs::create_dir(folder.path().join("a/folder")).unwrap();
        let denied = which(&["--path", &path, "folder"]);
        assert_eq!(stderr(&denied), format!("thruway: {path}/folder is a folder\n"));
        let script = |name: &str, line: &str| {
            std::fs::write(folder.path().join("a").join(name), line).unwrap();
            make_runnable(&folder.path().join("a").join(name));
            which(&["--path", &path, name])
        };
        let lines = script("lines", "#!/bin/sh\r\n");
        let expected = format!(
            "thruway: {path}/lines needs /bin/sh\\r, which does not exist\n\n\
             hint: the script's lines end in CR LF; save it with LF line ends\n"
        );
        assert_eq!((lines.status.code(), stderr(&lines)), (Some(1), expected.as_str()));
        for interpreter in [format!("{path}/note"), path.clone()] {
            let refused = script("refused", &format!("#!{interpreter}\n"));
            let expected = format!("{path}/refused needs {interpreter}, which cannot be run\n");
            assert!(stderr(&refused).contains(&expected), "{}", stderr(&refused));
            assert_eq!((refused.status.code(), stdout(&refused)), (Some(1), ""));
        }
        let nested = script("nested", &format!("#!{path}/nested\n"));
        assert!(stderr(&nested).contains("the system follows 5\n"), "{}", stderr(&nested));
        assert_eq!((nested.status.code(), stdout(&nested)), (Some(1), ""));
        let once = which(&["--count", "--path", &path, "tool"]);
        assert_eq!(stdout(&once), format!("{path}/tool\n1 look-up\n"));
        let empty = which(&["--path", &path, ""]);
        assert_eq!(stderr(&empty), "thruway: an empty name is not a command\n");
        assert_eq!(empty.status.code(), Some(1));
    }

    #[test]
    fn a_program_on_a_disk_without_programs_is_told_from_others() {
        let folder = tree(&["none/tool"]);
        let none = folder.path().join("none");
        let script = r#"mount -t tmpfs -o noexec,mode=755 none "$1" && cp -p /bin/true "$1/tool" &&
            exec "$2" which --path "$1" tool"#;
        let arguments = ["--mount", "--propagation=private", "sh", "-c", script, "sh"];
        let mut unshare = std::process::Command::new("unshare");
        let output = unshare.args(arguments).arg(&none).arg(env!("CARGO_BIN_EXE_thruway")).output();
        let Ok(output) = output else { return thruway_testing::skipped("unshare is missing") };
        if !stderr(&output).starts_with("thruway: ") {
            return thruway_testing::skipped("a file system cannot be mounted here");
        }
        let expected =
            format!("{}/tool is on a file system that is mounted noexec\n", none.display());
        assert!(stderr(&output).ends_with(&expected), "{}", stderr(&output));
        assert_eq!(output.status.code(), Some(1));
    }

    #[test]
    fn go_refuses_what_is_in_a_relative_folder() {
        let folder = tree(&["bin/tool.exe", "p/tool.exe"]);
        let root = folder.path().display().to_string();
        let go =
            |arguments: &[&str]| which(&[&["--rules", "go", "--root", &root], arguments].concat());
        let refused = go(&["--path", r"bin;C:\p", "tool"]);
        assert_eq!((refused.status.code(), stdout(&refused)), (Some(1), ""));
        assert!(stderr(&refused).starts_with(r"thruway: Go does not start bin\tool.EXE, "));
        let found = go(&["--path", r"C:\p;bin", "tool"]);
        assert_eq!((found.status.code(), stdout(&found)), (Some(0), "C:\\p\\tool.EXE\n"));
        let named = go(&["--path", r"C:\p", r"bin\tool"]);
        assert_eq!((named.status.code(), stdout(&named)), (Some(0), "bin\\tool.EXE\n"));
        let document = go(&["--json", "--path", "bin", "tool"]);
        assert!(stdout(&document).contains(r#""refused": "bin\\tool.EXE""#));
    }

    #[test]
    fn a_script_whose_interpreter_is_missing_is_passed_over() {
        let folder = tree(&["a/tool", "b/tool", "bin/sh"]);
        let [a, b] = ["a", "b"].map(|sub| folder.path().join(sub).display().to_string());
        std::fs::write(folder.path().join("a/tool"), "#!/no/such/sh -e\n").unwrap();
        let found = which(&["--count", "--path", &format!("{a}:{b}"), "tool"]);
        assert_eq!(stdout(&found), format!("{b}/tool\n2 look-ups\n"));
        let missing = which(&["--path", &a, "tool"]);
        let reason = format!("thruway: {a}/tool needs /no/such/sh, which does not exist\n");
        assert_eq!((missing.status.code(), stderr(&missing)), (Some(1), reason.as_str()));
        // In an image, the interpreter comes from the image.
        std::fs::write(folder.path().join("b/tool"), "#!/bin/sh\n").unwrap();
        std::fs::write(folder.path().join("a/tool"), "#!/bin/bash\n").unwrap();
        let root = folder.path().to_str().unwrap();
        let image = which(&["--root", root, "--path", "/a:/b", "tool"]);
        assert_eq!(stdout(&image), "/b/tool\n");
    }

    #[test]
    fn windows_rules_are_tried_on_a_tree() {
        let folder = tree(&["Bin/Tool.bat", "bin2/tool.EXE", "bin2/tool"]);
        let root = folder.path().to_str().unwrap();
        let search = |rules| {
            let path = r"C:\bin;D:\bin2";
            let output = which(&["-a", "--rules", rules, "--root", root, "--path", path, "tool"]);
            stdout(&output).lines().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(search("cmd"), [r"C:\bin\tool.BAT", r"D:\bin2\tool.EXE"]);
        let zig = [r"C:\bin\tool.BAT", r"D:\bin2\tool", r"D:\bin2\tool.EXE"];
        assert_eq!(search("zig"), zig);
        assert_eq!(search("rust"), [r"D:\bin2\tool.EXE"]);
    }

    #[test]
    fn windows_rules_need_windows_or_a_tree() {
        let output = which(&["--rules", "cmd", "tool"]);
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(
            stderr(&output),
            "thruway: these rules apply to the folders of Windows\n\n\
             hint: --root DIR searches a tree of such folders\n"
        );
    }

    #[test]
    fn json_holds_what_was_found_and_what_it_took() {
        let folder = tree(&["a/tool"]);
        let path = folder.path().join("a").display().to_string();
        let output = which(&["--json", "--path", &path, "tool", "nothing"]);
        let parsed: serde_json::Value = serde_json::from_str(stdout(&output)).unwrap();
        let tool = format!("{path}/tool");
        let expected = serde_json::json!([
            { "name": "tool", "found": [tool], "denied": [], "refused": null, "without_interpreter": [],
              "lookups": 1, "version": 1 },
            { "name": "nothing", "found": [], "denied": [], "refused": null, "without_interpreter": [],
              "lookups": 1, "version": 1 },
        ]);
        assert_eq!(parsed, expected);
    }
}

#[cfg(windows)]
mod windows {
    use super::*;

    fn path(folder: &Path, subs: &[&str]) -> String {
        let entries = subs.iter().map(|sub| folder.join(sub).display().to_string());
        entries.collect::<Vec<_>>().join(";")
    }

    #[test]
    fn suffixes_are_tried_in_their_order_folder_by_folder() {
        let folder = tree(&["a/Tool.bat", "a/tool.txt", "b/tool.EXE", "b/tool"]);
        let path = path(folder.path(), &["none", "a", "b"]);
        let search = |rules| {
            let ext = ".COM;.EXE;.BAT";
            let output =
                which(&["-a", "--rules", rules, "--path", &path, "--path-ext", ext, "tool"]);
            let base = format!("{}\\", folder.path().display());
            stdout(&output).lines().map(|line| line.replace(&base, "")).collect::<Vec<_>>()
        };
        assert_eq!(search("cmd"), [r"a\tool.BAT", r"b\tool.EXE"]);
        assert_eq!(search("zig"), [r"a\tool.BAT", r"b\tool", r"b\tool.EXE"]);
        assert_eq!(search("rust"), [r"b\tool.EXE"]);
    }

    #[test]
    fn the_current_folder_counts_on_request_only() {
        let folder = tree(&["tool.exe"]);
        let search = |arguments: &[&str]| {
            let mut which = crate::thruway();
            which.args(["which", "--path", r"C:\none"]).args(arguments).arg("tool");
            which.current_dir(&folder).env_remove("NoDefaultCurrentDirectoryInExePath");
            which
        };
        assert_eq!(search(&[]).status().unwrap().code(), Some(1));
        assert_eq!(stdout(&search(&["--current"]).output().unwrap()), ".\\tool.EXE\n");
        let mut refused = search(&["--current"]);
        refused.env("NoDefaultCurrentDirectoryInExePath", "");
        assert_eq!(refused.status().unwrap().code(), Some(1));
    }

    #[test]
    fn posix_rules_need_posix() {
        let output = which(&["--rules", "exec", "tool"]);
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(
            crate::stderr(&output),
            "thruway: these rules apply to the folders of POSIX systems\n\n\
             hint: --rules cmd searches as this system does\n"
        );
    }

    #[test]
    fn the_count_is_that_of_the_calls() {
        let folder = tree(&["a/x", "b/tool.exe"]);
        let path = path(folder.path(), &["a", "b"]);
        let ext = ".COM;.EXE;.BAT";
        let output = which(&["--count", "--path", &path, "--path-ext", ext, "tool"]);
        assert_eq!(stdout(&output).lines().last(), Some("7 look-ups"));
    }
}
