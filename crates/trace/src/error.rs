//! The errors of tracing a command or reading a recording.

use std::fmt;
use std::io;

use thruway_sys::printable;

/// An error: its kind, and the name of the command or file.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    name: Vec<u8>,
}

#[derive(Debug)]
enum ErrorKind {
    NotFound,
    System { doing: &'static str, error: io::Error },
    Malformed { line: u64, reason: String },
}

impl Error {
    pub(crate) fn not_found(name: &[u8]) -> Self {
        Self { kind: ErrorKind::NotFound, name: name.to_vec() }
    }

    pub(crate) fn system(doing: &'static str, name: &[u8], error: impl Into<io::Error>) -> Self {
        Self { kind: ErrorKind::System { doing, error: error.into() }, name: name.to_vec() }
    }

    pub(crate) fn malformed(name: &[u8], line: u64, reason: impl fmt::Display) -> Self {
        Self {
            kind: ErrorKind::Malformed { line, reason: reason.to_string() },
            name: name.to_vec(),
        }
    }

    /// Whether the system denies tracing (`EPERM` or `ENOSYS`).
    #[must_use]
    pub fn is_refused(&self) -> bool {
        const EPERM: i32 = 1;
        const ENOSYS: i32 = 38;
        match &self.kind {
            ErrorKind::System { doing, error } => {
                *doing == TRACE && matches!(error.raw_os_error(), Some(EPERM | ENOSYS))
            }
            _ => false,
        }
    }

    /// Whether the shared memory would exceed the limit of file sizes (`EFBIG`).
    #[must_use]
    pub fn is_too_large(&self) -> bool {
        const EFBIG: i32 = 27;
        matches!(&self.kind, ErrorKind::System { error, .. } if error.raw_os_error() == Some(EFBIG))
    }

    /// Whether a command that could not be run exists; `None` for other errors. An existing command may lack
    /// permission or be no program.
    #[must_use]
    pub fn is_command_there(&self) -> Option<bool> {
        match &self.kind {
            ErrorKind::NotFound => Some(false),
            ErrorKind::System { doing, error } if *doing == RUN => {
                let is_missing = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
                Some(!is_missing.contains(&error.kind()))
            }
            _ => None,
        }
    }

    /// Whether the command has no format that the system can execute (`ENOEXEC`).
    #[must_use]
    pub fn is_no_program(&self) -> bool {
        const ENOEXEC: i32 = 8;
        matches!(&self.kind, ErrorKind::System { error, .. } if error.raw_os_error() == Some(ENOEXEC))
    }
}

/// The action that [`Error::is_refused`] looks for.
pub(crate) const TRACE: &str = "trace";
/// The action that [`Error::is_command_there`] looks for.
pub(crate) const RUN: &str = "run";

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = printable::bytes(&self.name);
        match &self.kind {
            ErrorKind::NotFound if self.name.is_empty() => {
                write!(formatter, "an empty name is not a command")
            }
            ErrorKind::NotFound => write!(formatter, "cannot find the command {name}"),
            ErrorKind::System { doing, error } => {
                write!(formatter, "cannot {doing} {name}: {error}")
            }
            ErrorKind::Malformed { line, reason } => {
                write!(formatter, "{name}, line {line}: {reason}")
            }
        }
    }
}

impl std::error::Error for Error {}
