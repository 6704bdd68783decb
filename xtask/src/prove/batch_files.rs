//! `cargo x prove batch-files`: random arguments of batch files, under Wine's `cmd.exe`.

use std::path::Path;

use crate::wine::{Wine, missing};

pub(super) fn prove(root: &Path, cases: u64, seed: u64) -> Result<(), String> {
    if let Some(missing) = missing() {
        return Err(format!("this machine lacks {missing}"));
    }
    let wine = Wine::start(root)?;
    // With a filter before `--`, cargo would not build the example that prints arguments.
    let words = ["test", "--package", "thruway-spawn", "--", "random_arguments"];
    let mut tests = wine.cargo(words)?;
    tests.env("THRUWAY_CASES", cases.to_string()).env("THRUWAY_SEED", seed.to_string());
    crate::command::succeed(&mut tests)
}
