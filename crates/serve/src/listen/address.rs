//! The addresses that a server listens on.

use std::fmt;
use std::path::PathBuf;

use thruway_sys::printable;

/// An address to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A host's name or address, and a port; port 0 lets the system choose one.
    Tcp {
        /// `127.0.0.1`, `::1`, `localhost`, …
        host: String,
        /// The port.
        port: u16,
    },
    /// The path of a unix socket; a path that begins with `@` is an abstract name without a file.
    Unix {
        /// The path of the socket.
        path: PathBuf,
    },
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => {
                write!(formatter, "http://[{host}]:{port}")
            }
            Self::Tcp { host, port } => write!(formatter, "http://{host}:{port}"),
            Self::Unix { path } => write!(formatter, "unix://{}", printable::path(path)),
        }
    }
}
