//! What the daemon has to say, to whoever writes it down.

use std::fmt;
use std::path::PathBuf;
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

    pub(crate) fn error(&self, message: impl fmt::Display) {
        (self.write)(Level::Error, &message.to_string());
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
