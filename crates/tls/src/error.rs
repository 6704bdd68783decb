//! Why a certificate, a key or a setting cannot be used.

use std::fmt;
use std::path::{Path, PathBuf};

/// What cannot be used, and why.
#[derive(Debug)]
pub struct Error {
    file: Option<PathBuf>,
    reason: String,
}

impl Error {
    pub(crate) fn file(file: &Path, reason: impl fmt::Display) -> Self {
        // A relative path is taken from the working folder, which is not always where the path was written.
        let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        Self { file: Some(file), reason: reason.to_string() }
    }

    pub(crate) fn setting(reason: impl fmt::Display) -> Self {
        Self { file: None, reason: reason.to_string() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => write!(formatter, "cannot use {}: {}", file.display(), self.reason),
            None => write!(formatter, "cannot speak TLS: {}", self.reason),
        }
    }
}

impl std::error::Error for Error {}
