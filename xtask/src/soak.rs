//! `cargo x soak`: the tests with a duration of choice.

use std::path::Path;
use std::process::Command;

use clap::Args;

/// Expose a verb to misbehaving clients for a while
///
/// `cargo x check` runs the same test for some seconds.
#[derive(Debug, Args)]
pub(crate) struct Soak {
    /// Verb to test
    #[arg(value_parser = ["serve"])]
    verb: String,
    /// Duration of each test in seconds
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

impl Soak {
    pub(crate) fn run(&self, root: &Path) -> Result<(), String> {
        crate::command::succeed(
            Command::new(crate::command::cargo()).current_dir(root).args(["x", "gem"]),
        )?;
        let mut test = Command::new(crate::command::cargo());
        test.current_dir(root).args(["test", "--package", "thruway-cli", "--test", "it"]);
        test.arg(format!("soak::{}", self.verb));
        crate::command::succeed(test.env("THRUWAY_SOAK_SECONDS", self.seconds.to_string()))
    }
}
