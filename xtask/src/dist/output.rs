//! The folder of finished files, `target/dist`: one `cargo x dist` at a time adds complete files.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::build::Builder;
use super::files::{self, named};

/// Locks out a second `cargo x dist` of the checkout, until the lock is dropped or the process ends in any way.
pub(super) fn lock(builder: &Builder) -> Result<File, String> {
    let path = builder.work("lock");
    files::write(&path, "")?;
    let file = named(&path, File::open(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err("another cargo x dist is at work in this checkout".into())
        }
        Err(TryLockError::Error(error)) => Err(format!("{}: {error}", path.display())),
    }
}

/// Creates a file that appears only when complete: `make` returns the command that writes the file at the path that it
/// is given. The result has the date of the sources, so that equal sources give equal bytes.
pub(super) fn finish(
    builder: &Builder,
    name: &str,
    make: impl FnOnce(&Path) -> Command,
) -> Result<PathBuf, String> {
    let folder = builder.work("unfinished");
    files::empty(&folder)?;
    let path = folder.join(name);
    crate::command::succeed(make(&path).env("SOURCE_DATE_EPOCH", source_time(builder)?))?;
    let output = builder.output(name);
    named(&output, fs::rename(&path, &output))?;
    Ok(output)
}

/// The files of the version. Files of earlier versions may lie beside them.
pub(super) fn of_this_version(builder: &Builder) -> Result<Vec<PathBuf>, String> {
    let folder = builder.output("");
    let mut found = Vec::new();
    for entry in named(&folder, fs::read_dir(&folder))? {
        let path = named(&folder, entry)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_file() && is_of_version(name, &builder.version) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn is_of_version(name: &str, version: &str) -> bool {
    name.split(['-', '_']).any(|part| {
        part.strip_prefix(version).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

/// The time of the last change of the sources, in seconds: `SOURCE_DATE_EPOCH`, or the last commit.
pub(super) fn source_time(builder: &Builder) -> Result<String, String> {
    if let Ok(time) = std::env::var("SOURCE_DATE_EPOCH") {
        return Ok(time);
    }
    let time = git(builder, &["log", "-1", "--format=%ct"])?;
    if time.is_empty() {
        let hint = "hint: SOURCE_DATE_EPOCH says it in seconds";
        return Err(format!("no commit says when the sources were last changed\n\n{hint}"));
    }
    Ok(time)
}

/// Whether the checkout has uncommitted changes.
pub(super) fn is_changed(builder: &Builder) -> Result<bool, String> {
    Ok(!git(builder, &["status", "--porcelain"])?.is_empty())
}

/// Returns the output of git, which is empty if the sources are not a checkout.
fn git(builder: &Builder, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("git").current_dir(&builder.root).args(arguments).output();
    let output = output.map_err(|error| format!("cannot start git: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::platform::Processor;
    use super::*;

    fn builder(root: &Path) -> Builder {
        let package =
            "version = \"0.2.0\"\nhomepage = \"h\"\nrepository = \"r\"\nauthors = [\"a\"]\n";
        fs::write(root.join("Cargo.toml"), format!("[workspace.package]\n{package}")).unwrap();
        Builder::new(root, Processor::X86_64).unwrap()
    }

    #[test]
    fn files_of_other_versions_are_left_alone() {
        for (name, is_ours) in [
            ("thruway-0.2.0.gem", true),
            ("thruway-0.2.0-x86_64-linux.tar.gz", true),
            ("ruby-thruway_0.2.0_amd64.deb", true),
            ("thruway-0.1.0-x86_64-linux.tar.gz", false),
            ("thruway-10.2.0.gem", false),
            ("thruway_0.2.01_amd64.deb", false),
            ("SHA256SUMS", false),
        ] {
            assert_eq!(is_of_version(name, "0.2.0"), is_ours, "{name}");
        }
    }

    #[test]
    fn a_second_dist_of_a_checkout_is_refused_while_the_first_is_at_work() {
        let folder = tempfile::tempdir().unwrap();
        let builder = builder(folder.path());
        let first = lock(&builder).unwrap();
        let refused = lock(&builder).unwrap_err();
        assert_eq!(refused, "another cargo x dist is at work in this checkout");
        drop(first);
        lock(&builder).unwrap();
    }

    #[test]
    fn a_failure_half_way_leaves_the_file_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let builder = builder(folder.path());
        for arguments in [
            &["init", "--quiet"][..],
            &[
                "-c",
                "user.name=a",
                "-c",
                "user.email=a@b.example",
                "commit",
                "--quiet",
                "--allow-empty",
                "-m",
                "first",
            ],
        ] {
            let mut git = Command::new("git");
            crate::command::succeed(git.current_dir(folder.path()).args(arguments)).unwrap();
        }
        let made = |script: &'static str| {
            finish(&builder, "thruway-0.2.0.gem", |path| {
                let mut shell = Command::new("sh");
                shell.args(["-c", script, "sh"]).arg(path);
                shell
            })
        };
        let whole = made("echo whole >\"$1\"").unwrap();
        made("echo half >\"$1\"; exit 1").unwrap_err();
        assert_eq!(fs::read_to_string(&whole).unwrap(), "whole\n");
        assert_eq!(of_this_version(&builder).unwrap(), [whole]);
    }
}
