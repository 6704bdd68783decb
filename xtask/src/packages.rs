//! `cargo x packages`: builds every public crate from its package, outside the workspace, as a
//! program that depends on it does.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

/// What stays here: tasks, and the gem's extension, which the gem brings.
const PRIVATE: [&str; 2] = ["xtask", "thruway-gem-ext"];

/// Build every public crate from its package
#[derive(Debug, Args)]
pub(crate) struct Packages {}

impl Packages {
    pub(crate) fn run(&self, root: &Path) -> Result<(), String> {
        let target = root.join("target/packages");
        forget_earlier_packages(&target).map_err(|error| {
            format!("cannot remove what cargo keeps of earlier packages: {error}")
        })?;
        let mut cargo = Command::new(crate::command::cargo());
        // What is not committed yet is packaged, too.
        cargo.current_dir(root).env("CARGO_TARGET_DIR", &target).args([
            "package",
            "--quiet",
            "--allow-dirty",
            "--workspace",
        ]);
        cargo.args(PRIVATE.iter().flat_map(|package| ["--exclude", package]));
        crate::command::succeed(&mut cargo)
    }
}

/// cargo unpacks and compiles a package once for each version. Ours change without a new version, and the next
/// crate would be built against the first ones for ever.
fn forget_earlier_packages(target: &Path) -> io::Result<()> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    // A registry without a host is a folder of this machine.
    let is_local = |folder: &PathBuf| {
        folder.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"-"))
    };
    let sources = home.into_iter().flat_map(|home| entries(&home.join("registry/src")));
    let mut folders: Vec<_> = sources.filter(is_local).collect();
    folders.push(target.join("debug/.fingerprint"));
    for package in folders.iter().flat_map(|folder| entries(folder)) {
        if package.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"thruway-"))
        {
            fs::remove_dir_all(package)?;
        }
    }
    Ok(())
}

/// What a folder holds; nothing, if it is not there.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}
