//! What the daemon has to say, to whoever writes it down.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Where it is written.
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

/// How much it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Something failed that should not.
    Error,
    /// It goes on, but not as it was meant to.
    Warning,
    /// Something was refused, as it should be.
    Notice,
}

/// Writes a line down.
type Write = dyn Fn(Level, &str) + Send + Sync;

/// Where the daemon's lines go.
#[derive(Clone)]
pub struct Log {
    write: Arc<Write>,
}

impl Log {
    /// Lines go to `write`, each without an end of line.
    pub fn new(write: impl Fn(Level, &str) + Send + Sync + 'static) -> Self {
        Self { write: Arc::new(write) }
    }

    /// Each line begins with the mount that it is about.
    pub(crate) fn of(&self, target: &Path) -> Self {
        let (write, target) = (Arc::clone(&self.write), target.display().to_string());
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
