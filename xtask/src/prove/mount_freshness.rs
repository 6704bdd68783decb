//! `cargo x prove mount-freshness`: random changes behind a mount, and the view through the mount directly afterwards.

use std::path::Path;
use std::process::Command;

/// Runs the random tests of `tests/it/mount/freshness.rs` with `cases` changes each.
pub(super) fn prove(root: &Path, cases: u64, seed: u64) -> Result<(), String> {
    let mut test = Command::new(crate::command::cargo());
    test.current_dir(root).args(["test", "--profile", crate::command::PROOF_PROFILE]);
    test.args(["--package", "thruway-cli", "--test", "it"]);
    test.args(["mount::freshness::a_change_behind", "--", "--nocapture", "--test-threads", "1"]);
    test.env("THRUWAY_CASES", cases.to_string()).env("THRUWAY_SEED", seed.to_string());
    test.env("THRUWAY_PROGRESS", "1");
    crate::command::succeed(&mut test)
}
