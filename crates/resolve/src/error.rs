//! Why a name did not become an open file.

use std::fmt;

use crate::Refusal;

/// A name that did not become an open file, with the name that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    name: Vec<u8>,
    kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Refused(Refusal),
    System { doing: &'static str, errno: i32 },
    Ruby(String),
}

impl Error {
    #[cfg(target_os = "linux")]
    pub(crate) fn system(doing: &'static str, name: &[u8], errno: rustix::io::Errno) -> Self {
        Self::code(doing, name, errno.raw_os_error())
    }

    /// As the system numbers its errors: errno, or Windows' own.
    pub(crate) fn code(doing: &'static str, name: &[u8], code: i32) -> Self {
        Self { name: name.to_vec(), kind: Kind::System { doing, errno: code } }
    }

    pub(crate) fn refused(name: &[u8], refusal: Refusal) -> Self {
        Self { name: name.to_vec(), kind: Kind::Refused(refusal) }
    }

    pub(crate) fn ruby(name: &[u8], message: impl Into<String>) -> Self {
        Self { name: name.to_vec(), kind: Kind::Ruby(message.into()) }
    }

    /// The name that was asked for, as it was asked for.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The rule that refused the name before the system was asked, if one did.
    #[must_use]
    pub fn refusal(&self) -> Option<Refusal> {
        match self.kind {
            Kind::Refused(refusal) => Some(refusal),
            Kind::System { .. } | Kind::Ruby(_) => None,
        }
    }

    /// The system's error number, if the system was asked.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self.kind {
            Kind::Refused(_) | Kind::Ruby(_) => None,
            Kind::System { errno, .. } => Some(errno),
        }
    }

    /// Whether there is just no such file: the honest "no", as opposed to trouble.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        // ENOENT and ENOTDIR; on Windows ERROR_FILE_NOT_FOUND and ERROR_PATH_NOT_FOUND.
        const FILE: i32 = 2;
        const FOLDER: i32 = if cfg!(windows) { 3 } else { 20 };
        matches!(self.errno(), Some(FILE | FOLDER))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = String::from_utf8_lossy(&self.name);
        match &self.kind {
            Kind::Refused(refusal) => write!(formatter, "refused {name:?}: {refusal}"),
            Kind::Ruby(message) => formatter.write_str(message),
            Kind::System { doing, errno } => {
                let error = std::io::Error::from_raw_os_error(*errno);
                write!(formatter, "cannot {doing} {name}: {error}")
            }
        }
    }
}

impl std::error::Error for Error {}
