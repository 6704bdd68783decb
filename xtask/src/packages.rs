//! `cargo x packages`: builds every public crate from its package, outside the workspace, as whoever depends on
//! it does.

use std::path::Path;
use std::process::Command;

use clap::Args;

/// What stays here: tasks, and the gem's extension, which the gem brings.
const PRIVATE: [&str; 2] = ["xtask", "thruway-gem-ext"];

/// Build every public crate from its package
#[derive(Debug, Args)]
pub(crate) struct Packages {}

impl Packages {
    pub(crate) fn run(&self, root: &Path) -> Result<(), String> {
        let mut cargo = Command::new(crate::command::cargo());
        // What is not committed yet is packaged, too.
        cargo.current_dir(root).args(["package", "--quiet", "--allow-dirty", "--workspace"]);
        cargo.args(PRIVATE.iter().flat_map(|package| ["--exclude", package]));
        crate::command::succeed(&mut cargo)
    }
}
