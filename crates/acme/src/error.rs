//! The reasons why a certificate cannot be obtained or kept.

use std::fmt;
use std::io;
use std::path::Path;

use rustix::io::Errno;
use thruway_sys::printable;

/// A failure, with its cure if there is one.
#[derive(Debug)]
pub struct Error {
    message: String,
    hint: Option<String>,
    /// The time in seconds for which the authority wants no further attempt.
    retry_after_s: Option<u64>,
    /// Whether the authority does not know the account.
    is_account_lost: bool,
    /// Whether the failure precedes any request to the authority.
    is_local: bool,
}

impl Error {
    /// Creates an error from one lower-case line.
    pub(crate) fn new(message: impl fmt::Display) -> Self {
        let message = printable::text(&message.to_string()).into_owned();
        Self { message, hint: None, retry_after_s: None, is_account_lost: false, is_local: false }
    }

    pub(crate) fn file(doing: &str, path: &Path, error: &io::Error) -> Self {
        let failure = Self::new(format_args!("cannot {doing} {}: {error}", printable::path(path)));
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOSPC | Errno::DQUOT) => failure
                .hint("the disk is full; make room, or name another folder by --acme-storage"),
            Some(Errno::ROFS) => {
                failure.hint("the disk is read-only; name another folder by --acme-storage")
            }
            _ => failure,
        }
    }

    pub(crate) fn hint(self, hint: impl fmt::Display) -> Self {
        Self { hint: Some(hint.to_string()), ..self }
    }

    pub(crate) fn retry_after(self, retry_after_s: Option<u64>) -> Self {
        Self { retry_after_s, ..self }
    }

    pub(crate) fn account_lost(self) -> Self {
        Self { is_account_lost: true, ..self }
    }

    /// Marks a failure that precedes any request to the authority.
    pub(crate) fn local(self) -> Self {
        Self { is_local: true, ..self }
    }

    /// Whether the failure precedes any request to the authority.
    pub(crate) fn is_local(&self) -> bool {
        self.is_local
    }

    /// Whether the authority does not know the account, so that a new account has to be created.
    pub(crate) fn is_account_lost(&self) -> bool {
        self.is_account_lost
    }

    pub(crate) fn retry_after_s(&self) -> Option<u64> {
        self.retry_after_s
    }

    /// The cure for the failure, for its user.
    #[must_use]
    pub fn cure(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
