//! `cargo x prove mount-media`: a simulated media server on disks that fill up, disappear and return.

use std::path::Path;
use std::process::Command;

/// The simulated time for which one seed runs.
const HOURS: u64 = 24;

/// Runs the model test of `tests/it/mount/media_day.rs` for so many simulated hours, a day for each seed from this
/// one on.
pub(super) fn prove(root: &Path, hours: u64, seed: u64) -> Result<(), String> {
    let mut test = Command::new(crate::command::cargo());
    test.current_dir(root).args(["test", "--profile", crate::command::PROOF_PROFILE]);
    test.args(["--package", "thruway-cli", "--test", "it"]);
    test.args(["mount::media_day", "--", "--nocapture"]);
    test.env("THRUWAY_MEDIA_HOURS", hours.min(HOURS).to_string());
    test.env("THRUWAY_MEDIA_SEEDS", hours.div_ceil(HOURS).to_string());
    test.env("THRUWAY_MEDIA_SEED", seed.to_string());
    crate::command::succeed(&mut test)
}
