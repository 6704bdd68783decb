//! `thruway mount add`, `remove` and `reload`: change the sources of a mount in use.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use thruway_mount::{SourceChange, SourceSpec};
use thruway_sys::printable;

use super::failure::failure;
use crate::output::{Answer, Failure, print_report};

/// Add sources to a mount
///
/// Open files stay open. A source that the mount already has gets the new options. Prints the sources.
#[derive(Debug, Args)]
pub(super) struct Add {
    /// Add the sources before all others instead of after them
    #[arg(long)]
    first: bool,
    /// The folder of the mount
    #[arg(value_name = "TARGET")]
    target: PathBuf,
    /// The sources to add, as for thruway mount
    #[arg(value_name = "SOURCE", required = true)]
    sources: Vec<OsString>,
}

/// Remove sources from a mount
///
/// The files in the sources do not change, and open files stay open. Prints the remaining sources.
#[derive(Debug, Args)]
pub(super) struct Remove {
    /// The folder of the mount
    #[arg(value_name = "TARGET")]
    target: PathBuf,
    /// The sources to remove
    #[arg(value_name = "SOURCE", required = true)]
    sources: Vec<OsString>,
}

/// Expand the patterns of sources again, and read the file of sources again
///
/// SIGHUP to the process of the mount does the same, and reads the policy again. Prints the sources.
#[derive(Debug, Args)]
pub(super) struct Reload {
    /// The folder of the mount
    #[arg(value_name = "TARGET")]
    target: PathBuf,
}

impl Add {
    pub(super) fn run(self) -> Answer {
        let sources = specs(&self.sources)?;
        change(&self.target, &SourceChange::Add { sources, first: self.first })
    }
}

impl Remove {
    pub(super) fn run(self) -> Answer {
        change(&self.target, &SourceChange::Remove(specs(&self.sources)?))
    }
}

impl Reload {
    pub(super) fn run(self) -> Answer {
        change(&self.target, &SourceChange::Reload)
    }
}

fn change(target: &Path, change: &SourceChange) -> Answer {
    let target = thruway_mount::resolve_target(target).map_err(failure)?;
    let sources = thruway_mount::change_sources(&target, change).map_err(failure)?;
    print_report(&sources.iter().map(|source| source.clone() + "\n").collect::<String>())?;
    Ok(ExitCode::SUCCESS)
}

fn specs(sources: &[OsString]) -> Result<Vec<SourceSpec>, Failure> {
    sources.iter().map(|source| spec(source)).collect()
}

/// Parses a source. Its path may be relative.
pub(super) fn spec(source: &OsStr) -> Result<SourceSpec, Failure> {
    let given = Path::new(source);
    // A final slash is not part of the options.
    let trimmed = source.as_bytes().strip_suffix(b"/").filter(|rest| !rest.is_empty());
    let given = trimmed.map_or(given, |rest| Path::new(OsStr::from_bytes(rest)));
    let absolute = std::path::absolute(given).map_err(|error| {
        Failure::new(format_args!("no such path {}: {error}", printable::path(&given)))
    })?;
    let text = OsString::from_vec(absolute.into_os_string().into_vec());
    SourceSpec::parse(&text).map_err(failure)
}
