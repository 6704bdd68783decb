//! Errors when a mount starts or ends.

use std::fmt;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use thruway_sys::printable;

/// A failed step with its path, and a hint. Holds only text, so that it can be sent to another process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Error {
    message: String,
    hint: Option<String>,
}

impl Error {
    /// Creates an error for a step on a path, such as "cannot mount at", with its cause.
    pub fn new(doing: &str, path: &Path, cause: impl Into<io::Error>) -> Self {
        let cause = cause.into();
        Self { message: format!("{doing} {}: {cause}", printable::path(&path)), hint: None }
    }

    /// Creates an error from a message, without a cause.
    pub(crate) fn plain(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), hint: None }
    }

    pub(crate) fn with_hint(mut self, hint: impl fmt::Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    /// Returns a remedy that the user can try.
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
