//! The errors that prevent a run.

use std::fmt;
use std::io;
use std::net::IpAddr;

/// An error that prevented or ended a run. Failures of single requests are counted in the report instead.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Url { url: String, why: &'static str },
    Request { part: String, why: &'static str },
    Remote { host: String, address: IpAddr },
    Descriptors { needed: u64, allowed: u64 },
    Thread,
    System { doing: String, error: io::Error },
}

impl Error {
    pub(crate) fn url(url: &str, why: &'static str) -> Self {
        Self { kind: Kind::Url { url: url.to_owned(), why } }
    }

    pub(crate) fn request(part: &str, why: &'static str) -> Self {
        Self { kind: Kind::Request { part: part.to_owned(), why } }
    }

    pub(crate) fn remote(host: &str, address: IpAddr) -> Self {
        Self { kind: Kind::Remote { host: host.to_owned(), address } }
    }

    pub(crate) fn descriptors(needed: u64, allowed: u64) -> Self {
        Self { kind: Kind::Descriptors { needed, allowed } }
    }

    pub(crate) fn system(doing: impl Into<String>, error: impl Into<io::Error>) -> Self {
        Self { kind: Kind::System { doing: doing.into(), error: error.into() } }
    }

    pub(crate) fn no_thread() -> Self {
        Self { kind: Kind::Thread }
    }

    /// Whether the target was refused because it is another machine.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        matches!(self.kind, Kind::Remote { .. })
    }

    /// Whether the process may not have enough descriptors for the connections.
    #[must_use]
    pub fn is_too_many(&self) -> bool {
        matches!(self.kind, Kind::Descriptors { .. })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Url { url, why } => write!(formatter, "cannot ask {url}: {why}"),
            Kind::Request { part, why } => write!(formatter, "cannot send {part:?}: {why}"),
            Kind::Remote { host, address } if *host == address.to_string() => {
                write!(formatter, "{host} is another machine")
            }
            Kind::Remote { host, address } => {
                write!(formatter, "{host} is {address}, which is another machine")
            }
            Kind::Descriptors { needed, allowed } => {
                write!(formatter, "the run needs {needed} descriptors, but the limit is {allowed}")
            }
            Kind::Thread => write!(formatter, "a thread of the run has failed"),
            Kind::System { doing, error } => write!(formatter, "cannot {doing}: {error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            Kind::System { error, .. } => Some(error),
            _ => None,
        }
    }
}
