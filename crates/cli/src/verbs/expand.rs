//! `thruway expand`: the absolute form of a name, without touching the disk.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::ExitCode;

use clap::Args;
use thruway_resolve::{Flavour, expand};

use crate::output::{Answer, Failure, print};

/// Expand names to absolute ones, without touching the disk
///
/// Takes `.` and `..` away lexically and prints one name a line. Symbolic links are not followed.
#[derive(Debug, Args)]
pub(crate) struct Expand {
    /// The folder that relative names start at [default: the current folder]
    #[arg(long, value_name = "DIR")]
    base: Option<OsString>,
    /// The names
    #[arg(value_name = "PATH", required = true)]
    names: Vec<OsString>,
}

impl Expand {
    pub(crate) fn run(self) -> Answer {
        let base = match self.base {
            Some(base) => base,
            None => std::env::current_dir()
                .map_err(|error| Failure::new(format_args!("no current folder: {error}")))?
                .into(),
        };
        let mut lines = Vec::new();
        for name in self.names {
            lines.extend(expand(Flavour::Posix, &name.into_vec(), base.as_bytes()));
            lines.push(b'\n');
        }
        print(&lines)?;
        Ok(ExitCode::SUCCESS)
    }
}
