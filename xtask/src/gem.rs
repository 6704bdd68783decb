//! `cargo x gem`: builds the binary and the gem's extension, and copies the extension to where Ruby finds it.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

/// Build the binary and the gem's extension, which `-I target/PROFILE/gem -I gem/lib` makes loadable
#[derive(Debug, Args)]
pub(crate) struct Gem {
    /// Build optimised, as for users
    #[arg(long)]
    release: bool,

    /// Build with all tests, which share their dependencies with the binary, and lint everything
    #[arg(long, conflicts_with = "release")]
    tests: bool,
}

/// One command builds both. The features of dependencies are those of all chosen packages together, and another choice
/// of packages would compile the dependencies again each time, into the same files. So the check builds both with the
/// tests and examples, which need more features.
const BUILD: [&str; 5] = ["build", "--package", "thruway-cli", "--package", "thruway-gem-ext"];
pub(crate) const WITH_TESTS: [&str; 6] =
    ["build", "--workspace", "--lib", "--bins", "--tests", "--examples"];

impl Gem {
    pub(crate) fn run(&self, root: &Path) -> Result<(), String> {
        let ruby = std::env::var_os("RUBY").unwrap_or_else(|| "ruby".into());
        if self.tests {
            return build_by(crate::linting::cargo(root).args(WITH_TESTS), root, &ruby, "dev");
        }
        let mut cargo = Command::new(crate::command::cargo());
        let profile = if self.release { "release" } else { "dev" };
        build_by(cargo.current_dir(root).args(BUILD), root, &ruby, profile)
    }
}

/// Builds the binary and the extension for `ruby`, with a profile of `Cargo.toml`.
pub(crate) fn build(root: &Path, ruby: &OsStr, profile: &str) -> Result<(), String> {
    let mut cargo = Command::new(crate::command::cargo());
    build_by(cargo.current_dir(root).env("RUBY", ruby).args(BUILD), root, ruby, profile)
}

/// Builds with a command that determines the Ruby. A variable that later commands lack would make them compile the
/// extension once more.
fn build_by(build: &mut Command, root: &Path, ruby: &OsStr, profile: &str) -> Result<(), String> {
    let version = ruby_version(ruby)?;
    let status = build
        .args(["--profile", profile])
        .status()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    if !status.success() {
        return Err(format!("the extension does not build ({status})"));
    }
    install(&folder(root, profile), &version)
        .map_err(|error| format!("cannot copy the extension: {error}"))
}

/// The folder in which cargo puts the output of a profile.
pub(crate) fn folder(root: &Path, profile: &str) -> PathBuf {
    root.join("target").join(if profile == "dev" { "debug" } else { profile })
}

/// Copies the extension to `thruway/thruway.so` for `require`, and to a folder of its Ruby's version for `thruway run`,
/// which may start any Ruby.
fn install(profile: &Path, version: &str) -> std::io::Result<()> {
    let built = profile.join("libthruway_ext.so");
    let folder = profile.join("gem/thruway");
    for folder in [folder.join(version), folder] {
        fs::create_dir_all(&folder)?;
        // A rename lets a running Ruby keep the file that it has mapped.
        let partial = folder.join("thruway.so.partial");
        fs::copy(&built, &partial)?;
        fs::rename(partial, folder.join("thruway.so"))?;
    }
    Ok(())
}

/// Returns the version of the Ruby for which the extension is built, such as `3.1`. Fails if its headers are missing:
/// without them, a build script would panic.
pub(crate) fn ruby_version(ruby: &OsStr) -> Result<String, String> {
    const CURE: &str =
        "\n\nhint: scripts/setup installs what is missing (Debian's ruby and ruby-dev)";
    let script = "require 'rbconfig'
        header = File.join(RbConfig::CONFIG['rubyhdrdir'], 'ruby.h')
        File.exist?(header) or abort \"the headers of Ruby #{RUBY_VERSION} are missing (#{header})\"
        print RUBY_VERSION[/\\A\\d+\\.\\d+/]";
    let output = Command::new(ruby).args(["--disable=gems", "-e", script]).output();
    let output =
        output.map_err(|error| format!("cannot start {}: {error}{CURE}", ruby.display()))?;
    if !output.status.success() {
        return Err(format!("{}{CURE}", String::from_utf8_lossy(&output.stderr).trim_end()));
    }
    String::from_utf8(output.stdout).map_err(|error| format!("ruby's version: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ruby_that_is_not_there_is_named_with_its_cure() {
        let message = ruby_version(OsStr::new("/nowhere/ruby")).unwrap_err();
        assert!(message.starts_with("cannot start /nowhere/ruby: No such file"), "{message}");
        assert!(message.contains("\n\nhint: scripts/setup installs "), "{message}");
    }
}
