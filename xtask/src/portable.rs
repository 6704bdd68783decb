//! `cargo x portable`: lints the portable code for two POSIX systems that are not at hand.
//!
//! The standard library is built from the sources of Debian's own Rust. Nothing is linked, so no compiler and no
//! library of those systems is needed, and nothing is run.

use std::path::Path;

use clap::Args;

use crate::debian;

/// macOS and a BSD.
const TARGETS: [&str; 2] = ["aarch64-apple-darwin", "x86_64-unknown-freebsd"];

/// The packages with code for those systems.
const PACKAGES: [&str; 7] = [
    "thruway-sys",
    "thruway-resolve",
    "thruway-spawn",
    "thruway-pack",
    "thruway-boot",
    "thruway-gem-ext",
    "thruway-cli",
];

/// Lint what runs on macOS and the BSDs
#[derive(Debug, Args)]
pub(crate) struct Portable {}

impl Portable {
    pub(crate) fn run(&self, root: &Path) -> Result<(), String> {
        if let Some(missing) = debian::missing(&debian::LIBRARY_SOURCES) {
            println!("portable: skipped, because this machine lacks {missing}");
            return Ok(());
        }
        let mut cargo = debian::cargo(root);
        cargo.args(plan()).args(["--", "-D", "warnings"]);
        cargo.envs(ruby_of_this_machine());
        crate::command::succeed(&mut cargo)
    }
}

/// Returns cargo's arguments, without those of clippy.
pub(crate) fn plan() -> Vec<&'static str> {
    let targets = TARGETS.iter().flat_map(|target| ["--target", target]);
    let packages = PACKAGES.iter().flat_map(|package| ["--package", package]);
    ["clippy", debian::BUILD_LIBRARY].into_iter().chain(targets).chain(packages).collect()
}

/// Lets the extension use the Ruby headers of this machine for any target. The headers of another system are not at
/// hand, so their differences stay unnoticed.
fn ruby_of_this_machine() -> [(&'static str, String); 2] {
    let own = format!("--target={}-linux-gnu", std::env::consts::ARCH);
    // rb-sys compares its Ruby's system with the target, unless that system is unknown.
    [("BINDGEN_EXTRA_CLANG_ARGS", own), ("RBCONFIG_target_os", "unknown".to_owned())]
}
