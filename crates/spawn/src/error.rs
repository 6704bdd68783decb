//! The errors of starting a command.

use std::fmt;
use std::io;

use thruway_sys::printable;

/// The failure to start a command, with the error of every candidate.
#[derive(Debug)]
pub struct Error {
    name: Vec<u8>,
    kind: Kind,
}

/// A candidate that did not start.
#[derive(Debug)]
pub struct TriedCandidate {
    /// The path of the candidate.
    pub path: Vec<u8>,
    /// The system's error.
    pub error: io::Error,
}

#[derive(Debug)]
enum Kind {
    /// A step failed that is the same for all candidates.
    Step(&'static str, io::Error),
    /// The name, an argument or a variable cannot be passed to the system.
    Input(String),
    /// The search failed.
    Search(thruway_resolve::Error),
    /// No candidate could be started. `folders` is the number of searched folders.
    Candidates { tried: Vec<TriedCandidate>, folders: usize },
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

    pub(crate) fn candidates(name: &[u8], tried: Vec<TriedCandidate>, folders: usize) -> Self {
        Self { name: name.to_vec(), kind: Kind::Candidates { tried, folders } }
    }

    /// The name of the command, as given.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The tried candidates, in order. A search with a check for existence (on Windows, or with a lister) tries only
    /// existing candidates.
    #[must_use]
    pub fn tried(&self) -> &[TriedCandidate] {
        match &self.kind {
            Kind::Candidates { tried, .. } => tried,
            _ => &[],
        }
    }

    /// Whether no candidate exists. False for an existing program that did not start.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        match &self.kind {
            Kind::Candidates { tried, .. } => tried.iter().all(TriedCandidate::is_missing),
            _ => false,
        }
    }

    /// The system's error number, as `execvp` reports the error: the number of the first existing candidate, or else
    /// of the last candidate.
    #[must_use]
    pub fn raw_os_error(&self) -> Option<i32> {
        match &self.kind {
            Kind::Step(_, error) => error.raw_os_error(),
            Kind::Search(error) => error.errno(),
            Kind::Input(_) => None,
            Kind::Candidates { tried, .. } => reported_candidate(tried)?.error.raw_os_error(),
        }
    }
}

impl TriedCandidate {
    /// Creates the entry of a candidate with a permission problem.
    pub(crate) fn denied(path: &[u8]) -> Self {
        Self { path: path.to_vec(), error: io::ErrorKind::PermissionDenied.into() }
    }

    fn is_missing(&self) -> bool {
        matches!(self.error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
    }
}

impl fmt::Display for Error {
    /// Formats the error in one line; `{:#}` adds a line for each candidate.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = printable::bytes(&self.name);
        match &self.kind {
            Kind::Step(doing, error) => write!(formatter, "cannot {doing} for {name}: {error}")?,
            Kind::Input(message) => write!(formatter, "cannot start {name}: {message}")?,
            Kind::Search(error) => write!(formatter, "cannot start {name}: {error}")?,
            Kind::Candidates { tried, folders } => {
                match (tried.iter().find(|one| !one.is_missing()), folders) {
                    _ if self.name.is_empty() => {
                        write!(formatter, "an empty name is not a command")?
                    }
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

impl fmt::Display for TriedCandidate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", printable::bytes(&self.path), self.error)
    }
}

impl std::error::Error for Error {
    /// Returns the error behind [`raw_os_error`](Error::raw_os_error), or the error of the search.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            Kind::Step(_, error) => Some(error),
            Kind::Search(error) => Some(error),
            Kind::Input(_) => None,
            Kind::Candidates { tried, .. } => reported_candidate(tried)
                .map(|one| &one.error as &(dyn std::error::Error + 'static)),
        }
    }
}

impl From<Error> for io::Error {
    /// Keeps the kind of the system's error and the whole text.
    fn from(error: Error) -> Self {
        let kind = match &error.kind {
            Kind::Step(_, error) => error.kind(),
            Kind::Search(error) => Self::from(error.clone()).kind(),
            Kind::Input(_) => io::ErrorKind::InvalidInput,
            Kind::Candidates { tried, .. } => {
                reported_candidate(tried).map_or(io::ErrorKind::NotFound, |one| one.error.kind())
            }
        };
        Self::new(kind, error)
    }
}

/// Returns the candidate to report: the first existing candidate, or else the last.
fn reported_candidate(tried: &[TriedCandidate]) -> Option<&TriedCandidate> {
    tried.iter().find(|one| !one.is_missing()).or(tried.last())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn an_error_leads_to_its_cause_and_becomes_one_of_the_standard_library() {
        let tried =
            |kind: io::ErrorKind| TriedCandidate { path: b"/a".to_vec(), error: kind.into() };
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
