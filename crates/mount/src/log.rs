//! The daemon's log. The front end decides where and in which form lines are written.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thruway_sys::printable;

/// The destination of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogTarget {
    /// Standard error.
    Stderr,
    /// The systemd journal.
    Journal,
    /// The end of this file.
    File(PathBuf),
    /// No destination: lines are discarded.
    Nowhere,
}

/// The severity of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// An unexpected failure.
    Error,
    /// The mount works, but not as requested.
    Warning,
    /// A request was refused as intended.
    Notice,
}

/// Writes a line.
type Write = dyn Fn(Level, &str) + Send + Sync;

/// A log, which passes lines to the front end's writer.
#[derive(Clone)]
pub struct Log {
    write: Arc<Write>,
}

impl Log {
    /// Creates a log that passes each line to `write`, without a line end.
    pub fn new(write: impl Fn(Level, &str) + Send + Sync + 'static) -> Self {
        Self { write: Arc::new(write) }
    }

    /// Returns a log that starts each line with the mount's target.
    pub(crate) fn of(&self, target: &Path) -> Self {
        let (write, target) = (Arc::clone(&self.write), printable::path(target).into_owned());
        Self::new(move |level, line| write(level, &format!("{target}: {line}")))
    }

    pub(crate) fn error(&self, message: impl fmt::Display) {
        (self.write)(Level::Error, &message.to_string());
    }

    pub(crate) fn note(&self, message: impl fmt::Display) {
        (self.write)(Level::Notice, &message.to_string());
    }

    pub(crate) fn warn(&self, message: impl fmt::Display) {
        (self.write)(Level::Warning, &message.to_string());
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Log")
    }
}
