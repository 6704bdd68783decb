//! `cargo x prove which`: searches in random folders, compared with those of shells, the C library, Go and Python.

use std::path::Path;
use std::process::Command;

pub(super) fn prove(root: &Path, cases: u64, seed: u64) -> Result<(), String> {
    let mut test = Command::new(crate::command::cargo());
    test.current_dir(root).args(["test", "--package", "thruway-resolve", "--test", "oracle"]);
    test.args(["--", "peers"]);
    test.env("THRUWAY_CASES", cases.to_string()).env("THRUWAY_SEED", seed.to_string());
    crate::command::succeed(&mut test)
}
