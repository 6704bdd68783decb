//! Why a certificate, a key or a setting cannot be used.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use thruway_sys::printable;

/// What cannot be used, and why.
#[derive(Debug)]
pub struct Error {
    file: Option<PathBuf>,
    reason: String,
    is_passing: bool,
}

impl Error {
    pub(crate) fn file(file: &Path, reason: impl fmt::Display) -> Self {
        // A relative path is taken from the working folder, which is not always where the path was written.
        let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        Self { file: Some(file), reason: reason.to_string(), is_passing: false }
    }

    /// The system cannot read a file. What it has too few of may be there a moment later.
    pub(crate) fn read(file: &Path, error: &io::Error) -> Self {
        let raw = error.raw_os_error().map(Errno::from_raw_os_error);
        let is_passing = matches!(raw, Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM));
        Self { is_passing, ..Self::file(file, error) }
    }

    pub(crate) fn setting(reason: impl fmt::Display) -> Self {
        Self { file: None, reason: reason.to_string(), is_passing: false }
    }

    /// Whether another try may succeed though nothing was changed.
    pub(crate) fn is_passing(&self) -> bool {
        self.is_passing
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => {
                write!(formatter, "cannot use {}: {}", printable::path(&file), self.reason)
            }
            None => write!(formatter, "cannot speak TLS: {}", self.reason),
        }
    }
}

impl std::error::Error for Error {}
