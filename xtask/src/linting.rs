//! Builds that lint: clippy's driver compiles the workspace, so a single compilation builds and lints.
//!
//! `cargo clippy` only checks, and a subsequent build would compile each crate of the workspace once more. Crates built
//! by the driver lie beside those of a plain `cargo build`, and share its dependencies.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

/// The form in which `cargo clippy` passes `-D warnings` to its driver.
const DENY_WARNINGS: &str = "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__";

/// Returns the environment in which `cargo` lints the crates that it builds.
pub(crate) fn environment(cargo: &Path) -> [(&'static str, OsString); 2] {
    let driver = match cargo.parent() {
        // The driver of the same toolchain: another driver could not read the output of this compiler.
        Some(folder) if cargo.is_absolute() => folder.join("clippy-driver").into_os_string(),
        _ => "clippy-driver".into(),
    };
    [("RUSTC_WORKSPACE_WRAPPER", driver), ("CLIPPY_ARGS", DENY_WARNINGS.into())]
}

/// Returns a command of the current toolchain's cargo that lints the crates that it builds.
pub(crate) fn cargo(root: &Path) -> Command {
    let cargo = crate::command::cargo();
    let mut command = Command::new(&cargo);
    command.current_dir(root).envs(environment(&cargo));
    command
}
