//! `cargo x prove mount-media`: a simulated media server on disks that fill up, disappear and
//! return.

use std::path::Path;
use std::process::Command;

/// Runs the model test of `tests/it/mount/media_model.rs` with `steps` steps.
pub(super) fn prove(root: &Path, steps: u64, seed: u64) -> Result<(), String> {
    let mut test = Command::new(crate::command::cargo());
    test.current_dir(root).args(["test", "--profile", crate::command::PROOF_PROFILE]);
    test.args(["--package", "thruway-cli", "--test", "it"]);
    test.args(["mount::media_model", "--", "--nocapture"]);
    test.env("THRUWAY_MEDIA_STEPS", steps.to_string());
    test.env("THRUWAY_MEDIA_SEED", seed.to_string());
    crate::command::succeed(&mut test)
}
