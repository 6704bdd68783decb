//! `cargo x prove queue`: the simulation of the server's queue with many seeds, and a table of all cells.

use std::path::Path;
use std::process::Command;

pub(super) fn run(root: &Path, cases: u64, seed: u64) -> Result<(), String> {
    let mut test = Command::new(crate::command::cargo());
    test.current_dir(root).args(["test", "--release", "--package", "thruway-serve", "--lib"]);
    test.args(["queue::simulation", "--", "--nocapture"]);
    test.env("THRUWAY_CASES", cases.to_string()).env("THRUWAY_SEED", seed.to_string());
    crate::command::succeed(&mut test)
}
