//! `cargo x prove cache`: random sequences of responses, edits and purges, against models of RFC 9111. One test goes
//! through an engine, the other through the store alone.

use std::path::Path;
use std::process::Command;

/// The package and the name of each test.
const TESTS: [(&str, &str); 2] = [
    (
        "thruway-cache",
        "store::tests::no_sequence_of_edits_and_purges_serves_a_foreign_or_removed_page",
    ),
    (
        "thruway-serve",
        "engine::tests::cached::no_sequence_of_responses_edits_and_purges_serves_a_stale_or_foreign_page",
    ),
];

pub(super) fn run(root: &Path, cases: u64, seed: u64) -> Result<(), String> {
    for (package, name) in TESTS {
        let mut test = Command::new(crate::command::cargo());
        test.current_dir(root).args(["test", "--profile", crate::command::PROOF_PROFILE]);
        test.args(["--package", package, "--lib", "--", "--exact", "--nocapture", name]);
        test.env("THRUWAY_CASES", cases.to_string()).env("THRUWAY_SEED", seed.to_string());
        crate::command::succeed(&mut test)?;
    }
    Ok(())
}
