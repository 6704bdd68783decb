//! The errors of a server.

use std::fmt;
use std::io;

use rustix::io::Errno;

/// A server's operation that failed, with the system's reason.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    source: io::Error,
}

#[derive(Debug)]
enum Kind {
    Listen(String),
    Tls,
    Resolve(String),
    System(&'static str),
}

impl Error {
    pub(crate) fn listen(address: impl fmt::Display, source: impl Into<io::Error>) -> Self {
        Self { kind: Kind::Listen(address.to_string()), source: source.into() }
    }

    /// The error for a certificate or key that cannot be used.
    pub(crate) fn tls(source: thruway_tls::Error) -> Self {
        Self { kind: Kind::Tls, source: io::Error::other(source) }
    }

    pub(crate) fn resolve(host: &str, source: io::Error) -> Self {
        Self { kind: Kind::Resolve(host.to_owned()), source }
    }

    /// The error of an operation; `doing` completes "cannot …".
    pub(crate) fn system(doing: &'static str, source: impl Into<io::Error>) -> Self {
        Self { kind: Kind::System(doing), source: source.into() }
    }

    /// Whether another process already has the address.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        self.source.kind() == io::ErrorKind::AddrInUse
    }

    /// Whether the system lacks the address, or its address family.
    pub(crate) fn is_missing(&self) -> bool {
        let errno = self.source.raw_os_error().map(Errno::from_raw_os_error);
        matches!(errno, Some(Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT))
    }

    /// Whether the user may not use the address.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        self.source.kind() == io::ErrorKind::PermissionDenied
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Listen(address) => write!(formatter, "cannot listen on {address}")?,
            Kind::Resolve(host) => write!(formatter, "cannot find the host {host}")?,
            Kind::System(doing) => write!(formatter, "cannot {doing}")?,
            Kind::Tls => return write!(formatter, "{}", self.source),
        }
        write!(formatter, ": {}", self.source)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}
