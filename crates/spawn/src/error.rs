//! Why a command was not started.

use std::fmt;
use std::io;

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

    /// The system's error number: of the candidate that was there and could not be started, if any,
    /// as `execvp` reports it; else of the last one.
    #[must_use]
    pub fn raw_os_error(&self) -> Option<i32> {
        match &self.kind {
            Kind::Step(_, error) => error.raw_os_error(),
            Kind::Search(error) => error.errno(),
            Kind::Input(_) => None,
            Kind::Candidates { tried, .. } => {
                let told = tried.iter().find(|one| !one.is_missing()).or(tried.last());
                told.and_then(|one| one.error.raw_os_error())
            }
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
        let name = String::from_utf8_lossy(&self.name);
        match &self.kind {
            Kind::Step(doing, error) => write!(formatter, "cannot {doing} for {name}: {error}")?,
            Kind::Input(message) => write!(formatter, "cannot start {name}: {message}")?,
            Kind::Search(error) => write!(formatter, "cannot start {name}: {error}")?,
            Kind::Candidates { tried, folders } => {
                match (tried.iter().find(|one| !one.is_missing()), folders) {
                    _ if self.name.is_empty() => write!(formatter, "an empty name is no command")?,
                    (Some(one), _) => write!(formatter, "cannot start {one}")?,
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
        write!(formatter, "{}: {}", String::from_utf8_lossy(&self.path), self.error)
    }
}

impl std::error::Error for Error {}
