//! `cargo x prove mount-users`: mounts of ordinary users, in namespaces of their own.

use std::path::Path;
use std::process::Command;

/// Runs the tests of `tests/it/mount/users.rs`. They copy all mounts, so tests that unmount disks must not run beside
/// them.
pub(super) fn prove(root: &Path) -> Result<(), String> {
    let mut test = Command::new(crate::command::cargo());
    test.current_dir(root).args(["test", "--profile", crate::command::PROOF_PROFILE]);
    test.args(["--package", "thruway-cli", "--test", "it"]);
    test.args(["mount::users::", "--", "--nocapture"]).env("THRUWAY_MOUNT_USERS", "1");
    crate::command::succeed(&mut test)
}
