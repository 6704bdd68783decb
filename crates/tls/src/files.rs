//! Reads certificates and keys from files, and checks them.

use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::Error;

/// The maximum size of a file in bytes; bundles of certificates are smaller.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The permissions with which every user of the machine could read or change a key.
const FOR_ALL_USERS: u32 = 0o006;

/// The state of a file, which changes with the file's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    inode: (u64, u64),
    size: u64,
    modified_ns: i128,
    changed_ns: i128,
}

/// Returns the stamp of the file at `path`, or `None` if its metadata cannot be read.
pub(crate) fn stamp(path: &Path) -> Option<Stamp> {
    path.metadata().ok().map(|metadata| Stamp::of(&metadata))
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        let ns = |seconds: i64, ns: i64| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
        Self {
            inode: (metadata.dev(), metadata.ino()),
            size: metadata.size(),
            modified_ns: ns(metadata.mtime(), metadata.mtime_nsec()),
            changed_ns: ns(metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// Reads the certificates in a file: first that of the key's owner, then those of the authorities.
///
/// # Errors
/// The file cannot be read, or contains no certificate.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let (text, _) = read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|error| Error::file(path, error))?;
    if found.is_empty() {
        return Err(Error::file(path, "it holds no certificate in PEM"));
    }
    Ok(found)
}

/// Reads the private key in a file.
///
/// # Errors
/// The file cannot be read, contains no key or an encrypted one, or every user may read it.
pub(crate) fn key(path: &Path) -> Result<PrivateKeyDer<'static>, Error> {
    let (text, metadata) = read(path)?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & FOR_ALL_USERS != 0 {
        let reason = format!(
            "every user may use this key (mode {mode:03o}); chmod o= takes this right away"
        );
        return Err(Error::file(path, reason));
    }
    PrivateKeyDer::from_pem_slice(&text).map_err(|_| {
        let is_encrypted = String::from_utf8_lossy(&text).contains("ENCRYPTED");
        let reason = if is_encrypted {
            "its key is encrypted; write it without a password"
        } else {
            "it holds no private key in PEM"
        };
        Error::file(path, reason)
    })
}

fn read(path: &Path) -> Result<(Vec<u8>, Metadata), Error> {
    let failed = |error: std::io::Error| Error::read(path, &error);
    if !path.metadata().map_err(failed)?.is_file() {
        // Opening a pipe would wait for another process.
        return Err(Error::file(path, "it is not a file"));
    }
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let mut text = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut text).map_err(failed)?;
    Ok((text, metadata))
}
