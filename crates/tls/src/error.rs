//! Errors about certificates, keys and settings.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use thruway_sys::printable;

/// The file or the setting that cannot be used, and the reason.
#[derive(Debug, Clone)]
pub struct Error {
    file: Option<PathBuf>,
    reason: String,
    is_passing: bool,
}

impl Error {
    pub(crate) fn file(file: &Path, reason: impl fmt::Display) -> Self {
        // The absolute path shows where a relative path was resolved.
        let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        Self { file: Some(file), reason: reason.to_string(), is_passing: false }
    }

    /// Creates an error for a file that the system cannot read. A lack of descriptors or memory is temporary.
    pub(crate) fn read(file: &Path, error: &io::Error) -> Self {
        let raw = error.raw_os_error().map(Errno::from_raw_os_error);
        let is_passing = matches!(raw, Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM));
        Self { is_passing, ..Self::file(file, error) }
    }

    pub(crate) fn setting(reason: impl fmt::Display) -> Self {
        Self { file: None, reason: reason.to_string(), is_passing: false }
    }

    /// Whether another attempt may succeed although no file was changed.
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
