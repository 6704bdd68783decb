use super::*;

/// A checkout of a few files, with one commit.
fn checkout() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    for (file, text) in [
        (
            "Cargo.toml",
            "[workspace]\nmembers = [\"crates/a\"]\nresolver = \"3\"\n[workspace.package]\nversion = \"0.1.0\"\n",
        ),
        (
            "crates/a/Cargo.toml",
            "[package]\nname = \"a\"\nversion.workspace = true\nedition = \"2024\"\n",
        ),
        ("crates/a/src/lib.rs", ""),
        ("gem/lib/thruway/version.rb", "module Thruway\n  VERSION = \"0.1.0\"\nend\n"),
        ("CHANGELOG.md", "# Changelog\n\n## Unreleased\n\n- A thing.\n"),
        ("docs/benchmarks.md", "# Figures\n"),
        ("Cargo.lock", "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"0.1.0\"\n"),
    ] {
        fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
        fs::write(root.join(file), text).unwrap();
    }
    for arguments in [
        &["init", "--quiet"][..],
        &["config", "user.name", "test"],
        &["config", "user.email", "test@example.org"],
        &["add", "--all"],
    ] {
        git(root, arguments).unwrap();
    }
    commit_at(root, "2020-01-01T00:00:00Z");
    folder
}

/// Commits all changes at the given time: no test may depend on whether two commits share a second.
fn commit_at(root: &Path, time: &str) {
    let mut commit = Command::new("git");
    commit.current_dir(root).args(["commit", "--quiet", "--all", "-m", "a change"]);
    assert!(commit.env("GIT_COMMITTER_DATE", time).status().unwrap().success());
}

fn release(version: &str) -> Release {
    Release { version: version.into(), dry_run: false, old_benchmarks: false, no_dist: true }
}

#[test]
fn a_release_names_its_version_everywhere_and_is_tagged() {
    let folder = checkout();
    let root = folder.path();
    release("0.2.0").run(root).unwrap();
    for (file, line) in [
        ("Cargo.toml", "version = \"0.2.0\""),
        ("Cargo.lock", "version = \"0.2.0\""),
        ("gem/lib/thruway/version.rb", "  VERSION = \"0.2.0\""),
    ] {
        assert!(read(root, file).unwrap().lines().any(|own| own == line), "{file}");
    }
    let changes = read(root, "CHANGELOG.md").unwrap();
    assert!(changes.starts_with("# Changelog\n\n## Unreleased\n\n## 0.2.0 - 20"), "{changes}");
    assert_eq!(git(root, &["tag"]).unwrap(), "v0.2.0\n");
    assert_eq!(git(root, &["status", "--porcelain"]).unwrap(), "");
    let nothing_new = release("0.3.0").run(root).unwrap_err();
    assert_eq!(nothing_new, "CHANGELOG.md has nothing that is unreleased");
}

#[test]
fn uncommitted_changes_are_not_released() {
    let folder = checkout();
    fs::write(folder.path().join("new"), "").unwrap();
    let refused = release("0.2.0").run(folder.path()).unwrap_err();
    assert_eq!(refused, "the tree is not clean:\n?? new\n");
    assert_eq!(git(folder.path(), &["tag"]).unwrap(), "");
}

#[test]
fn figures_that_are_older_than_the_code_are_not_released() {
    let folder = checkout();
    fs::write(folder.path().join("crates/a/src/lib.rs"), "//! New.\n").unwrap();
    commit_at(folder.path(), "2090-01-01T00:00:00Z");
    let refused = release("0.2.0").run(folder.path()).unwrap_err();
    assert!(
        refused.starts_with("docs/benchmarks.md is older than the code\n\nhint: "),
        "{refused}"
    );
    let accepted = Release { old_benchmarks: true, dry_run: true, ..release("0.2.0") };
    accepted.run(folder.path()).unwrap();
    assert_eq!(git(folder.path(), &["tag"]).unwrap(), "");
}

#[test]
fn versions_go_up() {
    for (version, message) in [
        ("0.1.0", "0.1.0 is not greater than 0.1.0"),
        ("0.0.9", "0.0.9 is not greater than 0.1.0"),
        ("1.0", "\"1.0\" is not a version such as 0.2.0"),
    ] {
        assert_eq!(check_next("0.1.0", version), Err(message.to_owned()));
    }
    assert_eq!(check_next("0.9.0", "0.10.0"), Ok(()));
}
