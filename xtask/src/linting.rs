//! Builds that lint: clippy's driver compiles the workspace, so that one run of the compiler does both.
//!
//! `cargo clippy` only checks, and a build after it would compile each crate of the workspace once more. Crates that
//! are built this way lie beside those of a plain `cargo build`, which shares the dependencies.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

/// How `cargo clippy` hands `-D warnings` on to its driver.
const DENY_WARNINGS: &str = "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__";

/// Returns the environment in which this cargo lints what it builds.
pub(crate) fn environment(cargo: &Path) -> [(&'static str, OsString); 2] {
    let driver = match cargo.parent() {
        // The driver of the same toolchain: another one could not read what this cargo's compiler has written.
        Some(folder) if cargo.is_absolute() => folder.join("clippy-driver").into_os_string(),
        _ => "clippy-driver".into(),
    };
    [("RUSTC_WORKSPACE_WRAPPER", driver), ("CLIPPY_ARGS", DENY_WARNINGS.into())]
}

/// Returns a command of this toolchain's cargo that lints what it builds.
pub(crate) fn cargo(root: &Path) -> Command {
    let cargo = crate::command::cargo();
    let mut command = Command::new(&cargo);
    command.current_dir(root).envs(environment(&cargo));
    command
}
