//! Certificates that tests serve with. They were made once, by openssl, and hold for a hundred years.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A certificate and its key, in files.
#[derive(Debug)]
pub struct Pair {
    /// The certificate, which signs itself.
    pub certificate: PathBuf,
    /// The key, which only its owner may read.
    pub key: PathBuf,
}

/// A certificate for `localhost` and `*.a.example`.
///
/// # Panics
/// The folder cannot be written.
#[must_use]
pub fn localhost(folder: &Path) -> Pair {
    let certificate = include_str!("../vectors/localhost.cert.pem");
    write(folder, "localhost", certificate, include_str!("../vectors/localhost.key.pem"))
}

/// A certificate for `b.example`.
///
/// # Panics
/// The folder cannot be written.
#[must_use]
pub fn other(folder: &Path) -> Pair {
    let certificate = include_str!("../vectors/other.cert.pem");
    write(folder, "other", certificate, include_str!("../vectors/other.key.pem"))
}

impl Pair {
    /// As parameters of a server's address.
    #[must_use]
    pub fn parameters(&self) -> String {
        format!("cert={}&key={}", self.certificate.display(), self.key.display())
    }

    /// Puts another pair into the files, as an operator does.
    ///
    /// # Panics
    /// They cannot be written.
    pub fn replace_by(&self, other: &Self) {
        for (from, to) in [(&other.certificate, &self.certificate), (&other.key, &self.key)] {
            fs::copy(from, to).expect("it is written");
        }
    }
}

fn write(folder: &Path, name: &str, certificate: &str, key: &str) -> Pair {
    let file = |suffix: &str, text: &str| {
        let path = folder.join(format!("{name}.{suffix}.pem"));
        fs::write(&path, text).expect("it is written");
        fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("it is ours");
        path
    };
    Pair { certificate: file("cert", certificate), key: file("key", key) }
}
