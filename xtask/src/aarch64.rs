//! `cargo x aarch64`: lints everything for 64-bit ARM, the other processor on which Linux is common.
//!
//! The task uses the standard library of the current toolchain, if the toolchain has one for the target. Otherwise it
//! builds the library from the sources of Debian's own Rust. Nothing is linked, so no C compiler is needed. For build
//! scripts that call one, `true` stands in.

use std::path::Path;
use std::process::Command;

use clap::Args;

use crate::debian;

const TARGET: &str = "aarch64-unknown-linux-gnu";
const LINTS: [&str; 6] = ["--package=thruway-cli", "--target", TARGET, "--", "-D", "warnings"];
/// Lint everything for aarch64
#[derive(Debug, Args)]
pub(crate) struct Aarch64 {}

impl Aarch64 {
    pub(crate) fn run(&self, root: &Path) -> Result<(), String> {
        if has_library() {
            let mut cargo = Command::new(crate::command::cargo());
            cargo.current_dir(root).arg("clippy").args(LINTS);
            return crate::command::succeed(without_compiler(&mut cargo));
        }
        if let Some(missing) = debian::missing(&debian::LIBRARY_SOURCES) {
            println!("aarch64: skipped, because this machine lacks {missing}");
            return Ok(());
        }
        let mut cargo = debian::cargo(root);
        cargo.args(["clippy", debian::BUILD_LIBRARY]).args(LINTS);
        crate::command::succeed(without_compiler(&mut cargo))
    }
}

/// Returns cargo's arguments for the budget of units.
pub(crate) fn plan() -> Vec<&'static str> {
    [&["clippy", debian::BUILD_LIBRARY], &LINTS[..3]].concat()
}

/// Lets build scripts that compile C succeed; no program uses their output.
fn without_compiler(cargo: &mut Command) -> &mut Command {
    ["CC", "AR"].iter().fold(cargo, |cargo, tool| {
        cargo.env(format!("{tool}_{}", TARGET.replace('-', "_")), "true")
    })
}

/// Whether the current toolchain has a standard library for the target.
pub(crate) fn has_library() -> bool {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let folder = Command::new(rustc).args(["--print=target-libdir", "--target", TARGET]).output();
    let folder = folder.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    folder.is_ok_and(|folder| !folder.is_empty() && Path::new(&folder).is_dir())
}
