//! `cargo x prove policy`: random operations of several users under random policies, against a model.

use std::path::Path;
use std::process::Command;

const TEST: &str = "mount::policy_model::no_sequence_of_operations_gives_what_a_rule_refuses";

pub(super) fn run(root: &Path, cases: u64, seed: u64) -> Result<(), String> {
    let mut test = Command::new(crate::command::cargo());
    test.current_dir(root).args([
        "test",
        "--profile",
        crate::command::PROOF_PROFILE,
        "--package",
        "thruway-cli",
    ]);
    test.args(["--test", "it", "--"]);
    test.args(["--exact", "--nocapture", TEST]);
    test.env("POLICY_CASES", cases.to_string()).env("POLICY_SEED", seed.to_string());
    test.env("THRUWAY_PROGRESS", "1");
    crate::command::succeed(&mut test)
}
