//! `cargo x soak`: the tests that run for as long as they are told.

use std::path::Path;
use std::process::Command;

use clap::Args;

/// Leave a verb alone with bad company for a while
///
/// It is the test of the same name that runs for some seconds in `cargo x check`.
#[derive(Debug, Args)]
pub(crate) struct Soak {
    /// The verb
    #[arg(value_parser = ["serve"])]
    verb: String,
    /// How long each of its tests takes
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
