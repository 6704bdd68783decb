//! `cargo x portable`: lints what runs on every POSIX system, for two that are not at hand.
//!
//! The standard library is built from the sources that Debian has for its own Rust. Nothing is linked, so no
//! compiler and no library of those systems is needed, and nothing is run.

use std::path::Path;

use clap::Args;

use crate::debian;

/// macOS, and a BSD.
const TARGETS: [&str; 2] = ["aarch64-apple-darwin", "x86_64-unknown-freebsd"];

/// The packages that have a part there.
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

/// Returns cargo's arguments, but for those of clippy.
pub(crate) fn plan() -> Vec<&'static str> {
    let targets = TARGETS.iter().flat_map(|target| ["--target", target]);
    let packages = PACKAGES.iter().flat_map(|package| ["--package", package]);
    ["clippy", debian::BUILD_LIBRARY].into_iter().chain(targets).chain(packages).collect()
}

/// Lets the extension see Ruby's headers as this machine has them, whatever system it is compiled for. Those of
/// another one are not at hand, so what differs in them is not seen.
fn ruby_of_this_machine() -> [(&'static str, String); 2] {
    let own = format!("--target={}-linux-gnu", std::env::consts::ARCH);
    // rb-sys compares its Ruby's system with the target, unless it does not know the former.
    [("BINDGEN_EXTRA_CLANG_ARGS", own), ("RBCONFIG_target_os", "unknown".to_owned())]
}
