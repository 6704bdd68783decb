//! The errors of turning a name into an open file.

use std::fmt;
use std::io;

use thruway_sys::printable;

use crate::Refusal;

/// A name that could not be opened or found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    name: Vec<u8>,
    kind: Kind,
}

/// `ENOENT`; on Windows `ERROR_FILE_NOT_FOUND`.
const FILE_NOT_FOUND: i32 = 2;

/// `ENOTDIR`; on Windows `ERROR_PATH_NOT_FOUND`.
const FOLDER_NOT_FOUND: i32 = if cfg!(windows) { 3 } else { 20 };

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Refused(Refusal),
    System { doing: &'static str, error: SystemError },
    Ruby(String),
}

impl Error {
    #[cfg(target_os = "linux")]
    pub(crate) fn system(doing: &'static str, name: &[u8], errno: rustix::io::Errno) -> Self {
        Self::code(doing, name, errno.raw_os_error())
    }

    /// Creates an error from the system's error number: errno, or a Windows error code.
    pub(crate) fn code(doing: &'static str, name: &[u8], code: i32) -> Self {
        Self { name: name.to_vec(), kind: Kind::System { doing, error: SystemError(code) } }
    }

    /// Creates the error for a file that does not exist.
    pub(crate) fn not_found(name: &[u8]) -> Self {
        Self::code("find", name, FILE_NOT_FOUND)
    }

    /// Creates the error for a file that exists but must not be executed.
    pub(crate) fn denied(name: &[u8]) -> Self {
        const DENIED: i32 = if cfg!(windows) { 5 } else { 13 };
        Self::code("run", name, DENIED)
    }

    pub(crate) fn refused(name: &[u8], refusal: Refusal) -> Self {
        Self { name: name.to_vec(), kind: Kind::Refused(refusal) }
    }

    pub(crate) fn ruby(name: &[u8], message: impl Into<String>) -> Self {
        Self { name: name.to_vec(), kind: Kind::Ruby(message.into()) }
    }

    /// The name, as given.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The rule that refused the name before any query; `None` for other errors.
    #[must_use]
    pub fn refusal(&self) -> Option<Refusal> {
        match self.kind {
            Kind::Refused(refusal) => Some(refusal),
            Kind::System { .. } | Kind::Ruby(_) => None,
        }
    }

    /// The system's error number; `None` if the system was not asked.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self.kind {
            Kind::Refused(_) | Kind::Ruby(_) => None,
            Kind::System { error, .. } => Some(error.code()),
        }
    }

    /// Whether the file does not exist, as opposed to any other failure.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self.errno(), Some(FILE_NOT_FOUND | FOLDER_NOT_FOUND))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = printable::bytes(&self.name);
        match &self.kind {
            Kind::Refused(refusal) => write!(formatter, "refused \"{name}\": {refusal}"),
            Kind::Ruby(message) => formatter.write_str(message),
            Kind::System { doing, error } => write!(formatter, "cannot {doing} {name}: {error}"),
        }
    }
}

impl std::error::Error for Error {
    /// Returns the rule that refused the name, or the system's error.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            Kind::Refused(refusal) => Some(refusal),
            Kind::System { error, .. } => Some(error),
            Kind::Ruby(_) => None,
        }
    }
}

impl From<Error> for io::Error {
    /// Keeps the kind of the system's error and the whole text; a refused or invalid name becomes
    /// `InvalidInput`.
    fn from(error: Error) -> Self {
        let kind = match &error.kind {
            Kind::Refused(_) | Kind::Ruby(_) => io::ErrorKind::InvalidInput,
            Kind::System { error, .. } => error.kind(),
        };
        Self::new(kind, error)
    }
}

/// A system error number, displayed with the system's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SystemError(i32);

impl SystemError {
    /// The error number: errno, or a Windows error code.
    #[must_use]
    pub fn code(self) -> i32 {
        self.0
    }

    /// The kind of error.
    #[must_use]
    pub fn kind(self) -> io::ErrorKind {
        io::Error::from_raw_os_error(self.0).kind()
    }
}

impl fmt::Display for SystemError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        io::Error::from_raw_os_error(self.0).fmt(formatter)
    }
}

impl std::error::Error for SystemError {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn an_error_leads_to_its_cause_and_becomes_one_of_the_standard_library() {
        let error = Error::code("find", b"sh", 2);
        let cause = error.source().and_then(|cause| cause.downcast_ref::<SystemError>());
        assert_eq!(cause.map(|cause| cause.code()), Some(2));
        let error = io::Error::from(error);
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().starts_with("cannot find sh: "), "{error}");

        let error = Error::refused(b"a", Refusal::Nul);
        let cause = error.source().and_then(|cause| cause.downcast_ref::<Refusal>());
        assert_eq!(cause, Some(&Refusal::Nul));
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::InvalidInput);
    }
}
