//! `cargo x bench`: builds and starts the benchmarks, a crate of their own in `benches`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use clap::Args;

use crate::command;

/// Measure a verb against its peers; `cargo x bench --help` shows the options
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Bench {
    /// Arguments for the benchmarks
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl Bench {
    /// Replaces the current process by cargo, so that signals and the exit status are those of the benchmarks.
    pub(crate) fn run(self, root: &Path) -> Result<(), String> {
        let mut benchmarks = Command::new(command::cargo());
        benchmarks.args(["run", "--quiet", "--manifest-path"]).arg(root.join("benches/Cargo.toml"));
        let error = benchmarks.arg("--").args(self.arguments).exec();
        Err(format!("cannot start {benchmarks:?}: {error}"))
    }
}
