//! Why a command was not started.

use std::fmt;
use std::io;

use thruway_sys::printable;

/// A command that was not started, with everything that was tried.
#[derive(Debug)]
pub struct Error {
    name: Vec<u8>,
    kind: Kind,
}

/// A candidate that was tried, and what became of it.
#[derive(Debug)]
pub struct Tried {
    /// Its path.
    pub path: Vec<u8>,
    /// Why it was not started.
    pub error: io::Error,
}

#[derive(Debug)]
enum Kind {
    /// A step that has nothing to do with the candidates.
    Step(&'static str, io::Error),
    /// The name, an argument or a variable cannot be passed on.
    Input(String),
    /// The search itself failed.
    Search(thruway_resolve::Error),
    /// None of them was started, of so many folders.
    Candidates { tried: Vec<Tried>, folders: usize },
}

impl Error {
    pub(crate) fn step(name: &[u8], doing: &'static str, error: io::Error) -> Self {
        Self { name: name.to_vec(), kind: Kind::Step(doing, error) }
    }

    pub(crate) fn input(name: &[u8], message: impl fmt::Display) -> Self {
        Self { name: name.to_vec(), kind: Kind::Input(message.to_string()) }
    }

    pub(crate) fn search(name: &[u8], error: thruway_resolve::Error) -> Self {
        Self { name: name.to_vec(), kind: Kind::Search(error) }
    }

    pub(crate) fn candidates(name: &[u8], tried: Vec<Tried>, folders: usize) -> Self {
        Self { name: name.to_vec(), kind: Kind::Candidates { tried, folders } }
    }

    /// The name of the command, as it was given.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Every candidate that was tried, in order, with its error. Where the search looked before it
    /// tried (on Windows, and with a lister), these are the candidates that were there.
    #[must_use]
    pub fn tried(&self) -> &[Tried] {
        match &self.kind {
            Kind::Candidates { tried, .. } => tried,
            _ => &[],
        }
    }

    /// Whether there is just no such program: the honest "no", as opposed to trouble.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        match &self.kind {
            Kind::Candidates { tried, .. } => tried.iter().all(Tried::is_missing),
            _ => false,
        }
    }

    /// The system's error number, as `execvp` reports it. It is that of the candidate that was
    /// there and could not be started, or else of the last one.
    #[must_use]
    pub fn raw_os_error(&self) -> Option<i32> {
        match &self.kind {
            Kind::Step(_, error) => error.raw_os_error(),
            Kind::Search(error) => error.errno(),
            Kind::Input(_) => None,
            Kind::Candidates { tried, .. } => told(tried)?.error.raw_os_error(),
        }
    }
}

impl Tried {
    /// What is there and may not be run, or not be looked at.
    pub(crate) fn denied(path: &[u8]) -> Self {
        Self { path: path.to_vec(), error: io::ErrorKind::PermissionDenied.into() }
    }

    fn is_missing(&self) -> bool {
        matches!(self.error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
    }
}

impl fmt::Display for Error {
    /// One line; `{:#}` adds a line for each candidate.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = printable::bytes(&self.name);
        match &self.kind {
            Kind::Step(doing, error) => write!(formatter, "cannot {doing} for {name}: {error}")?,
            Kind::Input(message) => write!(formatter, "cannot start {name}: {message}")?,
            Kind::Search(error) => write!(formatter, "cannot start {name}: {error}")?,
            Kind::Candidates { tried, folders } => {
                match (tried.iter().find(|one| !one.is_missing()), folders) {
                    _ if self.name.is_empty() => write!(formatter, "an empty name is no command")?,
                    (Some(one), _) => write!(formatter, "cannot start {one}")?,
                    (None, 0) => write!(formatter, "no file can have the name {name}")?,
                    (None, 1) => write!(formatter, "{name} not found in 1 folder")?,
                    (None, folders) => write!(formatter, "{name} not found in {folders} folders")?,
                }
            }
        }
        if formatter.alternate() {
            self.tried().iter().try_for_each(|one| write!(formatter, "\n{one}"))?;
        }
        Ok(())
    }
}

impl fmt::Display for Tried {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", printable::bytes(&self.path), self.error)
    }
}

impl std::error::Error for Error {
    /// The system's error, of the candidate that [`raw_os_error`](Error::raw_os_error) tells of; or that of
    /// the search.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            Kind::Step(_, error) => Some(error),
            Kind::Search(error) => Some(error),
            Kind::Input(_) => None,
            Kind::Candidates { tried, .. } => {
                told(tried).map(|one| &one.error as &(dyn std::error::Error + 'static))
            }
        }
    }
}

impl From<Error> for io::Error {
    /// With the kind of the system's error, and the whole text.
    fn from(error: Error) -> Self {
        let kind = match &error.kind {
            Kind::Step(_, error) => error.kind(),
            Kind::Search(error) => Self::from(error.clone()).kind(),
            Kind::Input(_) => io::ErrorKind::InvalidInput,
            Kind::Candidates { tried, .. } => {
                told(tried).map_or(io::ErrorKind::NotFound, |one| one.error.kind())
            }
        };
        Self::new(kind, error)
    }
}

/// The candidate that was there and could not be started, if any; else the last one.
fn told(tried: &[Tried]) -> Option<&Tried> {
    tried.iter().find(|one| !one.is_missing()).or(tried.last())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn an_error_leads_to_its_cause_and_becomes_one_of_the_standard_library() {
        let tried = |kind: io::ErrorKind| Tried { path: b"/a".to_vec(), error: kind.into() };
        let kinds = [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied];
        let error = Error::candidates(b"a", kinds.map(tried).into(), 2);
        assert!(error.source().is_some_and(|cause| cause.is::<io::Error>()));
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::PermissionDenied);
        let error = io::Error::from(Error::candidates(b"a", Vec::new(), 0));
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let error = Error::search(b"a", thruway_resolve::which("a\0").unwrap_err());
        assert!(error.source().is_some_and(|cause| cause.is::<thruway_resolve::Error>()));
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_name_that_no_file_can_have_is_told_as_such() {
        let error = Error::candidates(b"a.bat.", Vec::new(), 0);
        assert_eq!(error.to_string(), "no file can have the name a.bat.");
    }
}
