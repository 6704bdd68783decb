//! Certificates for tests, created by openssl.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The files of a certificate and its key.
#[derive(Debug)]
pub struct Pair {
    /// The self-signed certificate.
    pub certificate: PathBuf,
    /// The key, which only its owner may read.
    pub key: PathBuf,
}

/// Creates a certificate for `localhost` and `*.a.example`.
///
/// # Panics
/// If openssl is missing, or the folder is not writable.
#[must_use]
pub fn localhost(folder: &Path) -> Pair {
    make(folder, "localhost", "DNS:localhost,DNS:*.a.example,IP:127.0.0.1,IP:::1")
}

/// Creates an authority, and a certificate for `localhost` that the authority has issued. The authority's own
/// certificate is `ca.pem`.
///
/// # Panics
/// If openssl is missing, or the folder is not writable.
#[must_use]
pub fn issued_for_localhost(folder: &Path) -> Pair {
    let script = "openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=tests
        openssl req -newkey rsa:2048 -nodes -keyout key.pem -out request.pem -subj /CN=localhost
        printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\\nbasicConstraints=CA:FALSE\\n' >extensions
        openssl x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -out cert.pem -days 2 \\
            -extfile extensions";
    let mut shell = Command::new("sh");
    let output = shell.args(["-euc", script]).current_dir(folder).output().expect("sh starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Pair { certificate: folder.join("cert.pem"), key: folder.join("key.pem") }
}

/// Creates a certificate for `b.example`.
///
/// # Panics
/// If openssl is missing, or the folder is not writable.
#[must_use]
pub fn other(folder: &Path) -> Pair {
    make(folder, "other", "DNS:b.example")
}

impl Pair {
    /// Returns the pair as parameters of a server's address.
    #[must_use]
    pub fn parameters(&self) -> String {
        format!("cert={}&key={}", self.certificate.display(), self.key.display())
    }

    /// Copies the pair to another folder.
    ///
    /// # Panics
    /// If the folder is not writable.
    #[must_use]
    pub fn copy_to(&self, folder: &Path) -> Self {
        let copy = Self { certificate: folder.join("cert.pem"), key: folder.join("key.pem") };
        copy.replace_by(self);
        copy
    }

    /// Overwrites the files with another pair, as an operator does.
    ///
    /// # Panics
    /// If the files are not writable.
    pub fn replace_by(&self, other: &Self) {
        for (from, to) in [(&other.certificate, &self.certificate), (&other.key, &self.key)] {
            fs::copy(from, to).expect("it is written");
        }
    }
}

fn make(folder: &Path, name: &str, hosts: &str) -> Pair {
    let file = |suffix: &str| folder.join(format!("{name}.{suffix}.pem"));
    let pair = Pair { certificate: file("cert"), key: file("key") };
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
    openssl.args(["-nodes", "-days", "100", "-subj", &format!("/CN={name}")]);
    openssl.args(["-addext", "basicConstraints=critical,CA:FALSE", "-addext"]);
    openssl.arg(format!("subjectAltName={hosts}"));
    openssl.arg("-keyout").arg(&pair.key).arg("-out").arg(&pair.certificate);
    let output = openssl.output().expect("openssl is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::set_permissions(&pair.key, PermissionsExt::from_mode(0o600)).expect("it is ours");
    pair
}
