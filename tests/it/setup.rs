//! `scripts/setup`, with a package manager of our own: nothing is installed.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;
use thruway_testing::{copy_program, write_program};

use crate::{stderr, stdout};

/// A `dpkg-query` that reports every requested package as installed.
const ALL_INSTALLED: &str =
    "echo once >>\"$(dirname \"$0\")/queries\"; shift 3; printf '%s installed\\n' \"$@\"";

/// Runs `scripts/setup serve` for the user `uid`, with the script `query` as `dpkg-query`. The folder's file `asked`
/// contains the requests to `apt-get`.
fn setup(query: &str, uid: u32) -> (TempDir, Output) {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    setup_of(&checkout, query, uid)
}

fn setup_of(checkout: &Path, query: &str, uid: u32) -> (TempDir, Output) {
    let folder = tempfile::tempdir().expect("a folder");
    let asked = folder.path().join("asked");
    for (name, script) in [
        ("dpkg-query", query.to_owned()),
        ("id", format!("echo {uid}")),
        ("apt-cache", "echo \"$2 | 1.0 | an archive\"".to_owned()),
        ("apt-get", format!("echo \"$@\" >>{}", asked.display())),
    ] {
        let path = folder.path().join(name);
        write_program(&path, format!("#!/bin/sh\n{script}\n"));
    }
    let rest = std::env::var("PATH").expect("there is one");
    let path = format!("{}:{rest}", folder.path().display());
    let output =
        Command::new(checkout.join("scripts/setup")).arg("serve").env("PATH", path).output();
    (folder, output.expect("the script starts"))
}

#[test]
fn without_root_setup_prints_the_command_and_installs_nothing() {
    let (folder, output) = setup("exit 1", 1000);
    assert_eq!(output.status.code(), Some(2));
    let said = stderr(&output);
    assert!(said.starts_with("thruway: these packages are missing: gcc libc6-dev make "), "{said}");
    let hint = "\n\nhint: as root, run: apt-get update && apt-get install -y --no-install-recommends \
                gcc libc6-dev make ";
    assert!(said.contains(hint), "{said}");
    assert!(folder.path().join("asked").metadata().is_err());
}

#[test]
fn as_root_setup_says_what_it_installs_and_does() {
    let (folder, output) = setup("exit 1", 0);
    assert!(output.status.success(), "{}", stderr(&output));
    let packages = stdout(&output).trim_end().strip_prefix("setup: installing ").unwrap();
    let asked = fs::read_to_string(folder.path().join("asked")).unwrap();
    assert!(asked.contains(&format!("install -y --no-install-recommends {packages} ")), "{asked}");
}

#[test]
fn with_everything_there_setup_has_nothing_to_say() {
    let (folder, output) = setup(ALL_INSTALLED, 0);
    assert_eq!((output.status.code(), stdout(&output), stderr(&output)), (Some(0), "", ""));
    // A query for each package would take longer than all other steps of `make serve` before the server starts.
    assert_eq!(fs::read_to_string(folder.path().join("queries")).expect("asked"), "once\n");
    assert!(folder.path().join("asked").metadata().is_err());
}

/// A bare root of Debian 12 does not list the archive of security updates.
#[test]
fn a_system_whose_rust_is_too_old_is_told_so() {
    let checkout = tempfile::tempdir().expect("a folder");
    let scripts = checkout.path().join("scripts");
    fs::create_dir(&scripts).expect("it is made");
    let setup = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/setup");
    copy_program(setup, scripts.join("setup"));
    write_program(scripts.join("cargo"), "#!/bin/sh\nexit 2\n");
    let (folder, output) = setup_of(checkout.path(), ALL_INSTALLED, 0);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(stderr(&output).contains("the Rust of this system is too old\n\nhint: "), "{output:?}");
    let is_debian =
        fs::read_to_string("/etc/os-release").is_ok_and(|told| told.contains("\nID=debian\n"));
    let line = "hint: echo 'deb http://deb.debian.org/debian-security ";
    assert_eq!(stderr(&output).contains(line), is_debian, "{output:?}");
    // A newer package was requested.
    let asked = fs::read_to_string(folder.path().join("asked")).expect("apt-get was called");
    assert!(asked.contains("install -y --no-install-recommends rustc-web cargo-web"), "{asked}");
}

/// Runs `make` in the checkout and returns its output. With `--dry-run`, make runs nothing. The variables that `make
/// test` sets for its children are removed, because a user's shell has none.
fn make(arguments: &[&str]) -> Output {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut make = Command::new("make");
    for told in ["MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES"] {
        make.env_remove(told);
    }
    make.current_dir(checkout).args(arguments).output().expect("make starts")
}

#[test]
fn a_plain_make_lists_its_targets_and_installs_nothing() {
    let output = make(&[]);
    assert!(output.status.success(), "{}", stderr(&output));
    for target in ["serve", "test", "build", "setup", "clean"] {
        let line = format!("make {target} ");
        assert!(stdout(&output).lines().any(|told| told.starts_with(&line)), "{output:?}");
    }
    assert!(!stdout(&make(&["--dry-run"])).contains("scripts/"));
}

#[test]
fn an_application_whose_path_has_a_space_is_one_argument() {
    let output = make(&["--dry-run", "serve", "APP=my dir"]);
    let last = stdout(&output).lines().last().unwrap_or_default();
    assert_eq!(last, "target/release/thruway serve \"my dir\"");
}
