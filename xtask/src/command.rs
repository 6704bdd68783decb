//! Commands that tasks start.

use std::path::PathBuf;
use std::process::Command;

/// A profile of `Cargo.toml`: slightly optimised, with the checks of a test build.
pub const PROOF_PROFILE: &str = "proof";

/// The cargo that started the current task.
pub fn cargo() -> PathBuf {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()).into()
}

/// The program of the current task, for tasks that it starts. The program starts at once, while `cargo x` would wait
/// for other builds.
pub fn own_program() -> PathBuf {
    std::env::current_exe().unwrap_or_else(|_| "target/debug/xtask".into())
}

/// Runs a command that must succeed.
pub fn succeed(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("cannot start {command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} failed ({status})")) }
}

/// Returns the standard output of a command that must succeed.
pub fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("cannot start {command:?}: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{command:?} failed ({}): {}", output.status, said.trim_end()));
    }
    String::from_utf8(output.stdout).map_err(|error| format!("{command:?}: {error}"))
}
