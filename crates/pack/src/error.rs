//! The errors of opening and writing packs.

use std::fmt;
use std::path::{Path, PathBuf};

#[cfg(unix)]
use rustix::fs::RawMode;
use thruway_sys::printable;

/// A file that cannot be used or written as a pack.
#[derive(Debug)]
pub struct Error {
    path: PathBuf,
    kind: Kind,
}

#[derive(Debug)]
pub(crate) enum Kind {
    System {
        doing: &'static str,
        error: std::io::Error,
    },
    NotAFile,
    #[cfg(unix)]
    OwnedByAnother {
        uid: u32,
    },
    #[cfg(windows)]
    OwnedByAnother,
    #[cfg(unix)]
    WritableByOthers {
        mode: RawMode,
    },
    #[cfg(windows)]
    WritableByOthers,
    NotAPack,
    OtherFormat(u32),
    OtherIdentity,
    Damaged(&'static str),
    TooLarge,
}

impl Error {
    pub(crate) fn new(path: &Path, kind: Kind) -> Self {
        Self { path: path.to_owned(), kind }
    }

    pub(crate) fn system(
        path: &Path,
        doing: &'static str,
        error: impl Into<std::io::Error>,
    ) -> Self {
        Self::new(path, Kind::System { doing, error: error.into() })
    }

    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file does not exist, because no pack has been written yet.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(&self.kind, Kind::System { error, .. } if error.kind() == std::io::ErrorKind::NotFound)
    }

    /// Whether the pack is intact but belongs to another program, such as another version of Ruby.
    #[must_use]
    pub fn is_other_identity(&self) -> bool {
        matches!(self.kind, Kind::OtherIdentity)
    }

    /// Whether the file is ignored because another user could have written it.
    #[must_use]
    pub fn is_untrusted(&self) -> bool {
        #[cfg(unix)]
        return matches!(self.kind, Kind::OwnedByAnother { .. } | Kind::WritableByOthers { .. });
        #[cfg(windows)]
        return matches!(self.kind, Kind::OwnedByAnother | Kind::WritableByOthers);
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = printable::path(&self.path);
        match &self.kind {
            Kind::System { doing, error } => write!(formatter, "cannot {doing} {path}: {error}"),
            Kind::NotAFile => write!(formatter, "{path} is not a regular file"),
            #[cfg(windows)]
            Kind::OwnedByAnother => {
                write!(formatter, "{path} belongs to another user, who is not an administrator")
            }
            #[cfg(windows)]
            Kind::WritableByOthers => {
                write!(formatter, "{path} can be written by others (see icacls)")
            }
            #[cfg(unix)]
            Kind::OwnedByAnother { uid } => {
                write!(formatter, "{path} belongs to user {uid}, neither to this one nor to root")
            }
            #[cfg(unix)]
            Kind::WritableByOthers { mode } => {
                write!(formatter, "{path} can be written by others (mode {:04o})", mode & 0o7777)
            }
            Kind::NotAPack => write!(formatter, "{path} is not a pack"),
            Kind::OtherFormat(format) => write!(formatter, "{path} is a pack of format {format}"),
            Kind::OtherIdentity => write!(formatter, "{path} was made for another program"),
            Kind::Damaged(part) => write!(formatter, "{path} is damaged: {part}"),
            Kind::TooLarge => write!(formatter, "{path} would be too large for a pack"),
        }
    }
}

impl std::error::Error for Error {}
