//! `cargo x ebpf`: lints and tests what is built only with the feature `ebpf`.

use std::path::Path;
use std::process::Command;

use clap::Args;

/// The whole workspace is named, so that libraries keep the features with which the other tests have them.
const FEATURE: [&str; 3] = ["--workspace", "--features", "thruway-cli/ebpf"];
const LINTS: [&str; 4] = ["--all-targets", "--", "-D", "warnings"];
/// The tests that ask the back end; the rest of the binary is the same as without it.
const TESTS: [&str; 7] =
    ["--test", "it", "--", "trace::ebpf", "trace::names", "trace::oracle", "trace::passing"];

/// Lint and test the back end of programs in the kernel
#[derive(Debug, Args)]
pub(crate) struct Ebpf {}

impl Ebpf {
    pub(crate) fn run(&self, root: &Path) -> Result<(), String> {
        if !is_buildable() {
            println!("ebpf: skipped, because this machine lacks clang");
            return Ok(());
        }
        let cargo = |task: &str, arguments: &[&str]| {
            let mut cargo = Command::new(crate::command::cargo());
            crate::command::succeed(cargo.current_dir(root).arg(task).args(FEATURE).args(arguments))
        };
        cargo("clippy", &LINTS)?;
        cargo("test", &TESTS)
    }
}

/// Whether the programs can be compiled here.
pub(crate) fn is_buildable() -> bool {
    Command::new("clang").arg("--version").output().is_ok()
}
