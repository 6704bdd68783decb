use crate::{run, stderr, stdout, thruway};

fn expanded(arguments: &[&str]) -> String {
    let output = run(&[&["expand"], arguments].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output).to_owned()
}

#[test]
fn names_are_expanded_one_a_line() {
    let posix = ["--flavour", "posix", "--base", "/srv", "a/../b", "/c/./d"];
    assert_eq!(expanded(&posix), "/srv/b\n/c/d\n");
}

#[test]
fn the_current_folder_is_the_base_by_default() {
    let folder = tempfile::tempdir().unwrap();
    let output = thruway().current_dir(&folder).args(["expand", "a"]).output().unwrap();
    assert_eq!(stdout(&output).trim_end(), folder.path().join("a").to_str().unwrap());
}

#[test]
fn a_relative_base_starts_at_the_current_folder() {
    let folder = tempfile::tempdir().unwrap();
    let mut expand = thruway();
    expand.current_dir(&folder).args(["expand", "--base", "x", "a"]);
    let expected = folder.path().join("x").join("a");
    assert_eq!(stdout(&expand.output().unwrap()).trim_end(), expected.to_str().unwrap());
}

#[cfg(unix)]
#[test]
fn a_current_folder_that_is_gone_matters_only_to_names_that_start_there() {
    let folder = tempfile::tempdir().unwrap();
    let expand = |arguments: &[&str]| {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "mkdir gone && cd gone && rmdir ../gone && exec \"$@\"", "sh"]);
        shell.arg(thruway().get_program()).arg("expand").args(arguments);
        shell.current_dir(&folder).output().unwrap()
    };
    assert_eq!(stdout(&expand(&["/a/../b"])), "/b\n");
    assert_eq!(stdout(&expand(&["--base", "/x", "a"])), "/x/a\n");
    assert_eq!(stdout(&expand(&["--ruby", "--home", "/h", "~/a", "/b"])), "/h/a\n/b\n");
    for lost in [["--base", "x", "a"].as_slice(), &["--ruby", "/a", "b"]] {
        let output = expand(lost);
        assert!(
            stderr(&output).starts_with("thruway: cannot find the current folder: "),
            "{lost:?}"
        );
        assert_eq!((stdout(&output), output.status.code()), ("", Some(2)));
    }
}

/// Ruby reads the home from the accounts.
#[cfg(unix)]
#[test]
fn without_a_variable_the_home_is_that_of_the_account() {
    let mut ruby = std::process::Command::new("ruby");
    let ruby = ruby.env_remove("HOME").args(["-e", "puts File.expand_path('~/x')"]).output();
    let expanded = thruway().env_remove("HOME").args(["expand", "--ruby", "~/x"]).output().unwrap();
    assert_eq!(stdout(&expanded), stdout(&ruby.unwrap()));
    assert!(stdout(&expanded).ends_with("/x\n"), "{}", stderr(&expanded));
}

#[test]
fn windows_names_are_expanded_everywhere() {
    let names =
        ["--flavour", "windows", "--base", r"D:\w", r"a/./b.", "nul", r"\c", r"\\?\C:\a/.."];
    assert_eq!(expanded(&names), "D:\\w\\a\\b\n\\\\.\\nul\nD:\\c\n\\\\?\\C:\\a/..\n");
}

#[test]
fn the_version_of_windows_decides_what_a_device_is() {
    let names = |version| ["--flavour", "windows", "--windows", version, r"C:\a\nul.txt"];
    assert_eq!(expanded(&names("10")), "\\\\.\\nul\n");
    assert_eq!(expanded(&names("11")), "C:\\a\\nul.txt\n");
}

#[test]
fn ruby_adds_the_home_and_turns_the_slashes() {
    let ruby = ["--ruby", "--flavour", "windows", "--home", "C:/Users/me", "~/a", r"D:\b\"];
    assert_eq!(expanded(&ruby), "C:/Users/me/a\nD:/b\n");
    let ruby = ["--ruby", "--flavour", "posix", "--home", "/home/me", "~/../a", "//b"];
    assert_eq!(expanded(&ruby), "/home/a\n//b\n");
}

#[cfg(unix)]
#[test]
fn ruby_knows_the_homes_of_local_users() {
    let shell = std::process::Command::new("sh").args(["-c", "echo ~daemon/a"]).output().unwrap();
    assert_eq!(expanded(&["--ruby", "~daemon/a"]), stdout(&shell));
    let output = run(&["expand", "--ruby", "~no_such_user"]);
    assert_eq!(
        stderr(&output),
        "thruway: cannot expand ~no_such_user: user no_such_user doesn't exist\n"
    );
    assert_eq!(output.status.code(), Some(2));
}

#[cfg(windows)]
#[test]
fn windows_itself_keeps_a_folder_for_each_drive() {
    let folder = tempfile::tempdir().unwrap();
    let mut expand = thruway();
    expand.env("=D:", r"D:\deep").current_dir(&folder).args(["expand", "D:a", r"\b", "NUL"]);
    let drive = folder.path().to_str().unwrap().split('\\').next().unwrap();
    let expected = format!("D:\\deep\\a\n{drive}\\b\n\\\\.\\NUL\n");
    assert_eq!(stdout(&expand.output().unwrap()), expected);
}
