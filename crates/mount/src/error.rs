//! Errors of starting and ending a mount.

use std::fmt;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use thruway_sys::printable;

/// What failed, with its path, and a hint. It holds text, so that it can be sent to another process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Error {
    message: String,
    hint: Option<String>,
}

impl Error {
    /// What failed with a path, as in "cannot mount at", and its cause.
    pub fn new(doing: &str, path: &Path, cause: impl Into<io::Error>) -> Self {
        let cause = cause.into();
        Self { message: format!("{doing} {}: {cause}", printable::path(&path)), hint: None }
    }

    /// A message without a cause.
    pub(crate) fn plain(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), hint: None }
    }

    pub(crate) fn with_hint(mut self, hint: impl fmt::Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    /// What the user can do about it.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
