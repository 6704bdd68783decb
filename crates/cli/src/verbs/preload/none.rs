//! `thruway run --preload` on systems without templates. Only Linux has templates.

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;

use thruway_boot::Options;
use thruway_spawn::Command;

use crate::output::Failure;

pub(crate) fn run(
    _: &[OsString],
    _: &Options,
    _: Command,
) -> Result<ControlFlow<ExitCode, Command>, Failure> {
    Err(Failure::of_linux("--preload").hint("without it, the command boots from its pack"))
}

/// Whether the environment requests preloading: never, since several machines may share an environment and the command
/// can boot here.
pub(crate) fn is_wanted() -> bool {
    false
}

pub(crate) fn with_files(command: Command, _: Vec<PathBuf>) -> Result<Command, Failure> {
    Ok(command)
}
