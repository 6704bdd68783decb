//! The daemon's log; the front end writes its lines.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thruway_sys::printable;

/// Where the log goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogTarget {
    /// To standard error.
    Stderr,
    /// To systemd's journal.
    Journal,
    /// To the end of this file.
    File(PathBuf),
    /// Nowhere.
    Nowhere,
}

/// The severity of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Something failed that should not.
    Error,
    /// The mount works, but not as was asked for.
    Warning,
    /// Something was refused, as it should be.
    Notice,
}

/// Writes a line.
type Write = dyn Fn(Level, &str) + Send + Sync;

/// Writes the daemon's lines.
#[derive(Clone)]
pub struct Log {
    write: Arc<Write>,
}

impl Log {
    /// Lines go to `write`, each without an end of line.
    pub fn new(write: impl Fn(Level, &str) + Send + Sync + 'static) -> Self {
        Self { write: Arc::new(write) }
    }

    /// A log whose lines begin with the mount's target.
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
