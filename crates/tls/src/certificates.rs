//! Chooses the certificate for a client.

use std::path::Path;
use std::sync::Arc;

use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use thruway_sys::printable;

use crate::files;
use crate::session::ACME;
use crate::{AcmeFolder, Automatic, Error, Options};

/// The error for a key of an unsupported kind, since the provider's message does not name the limits.
const UNKNOWN_KEY: &str =
    "its key is not RSA of 2048 to 4096 bits, ECDSA with P-256 or P-384, or Ed25519";

/// The certificates of a listener, with their keys. A client receives the first certificate that is valid for the name
/// that it requests, or the first certificate if it requests no name or an unknown one.
#[derive(Debug)]
pub(crate) struct Certificates {
    pairs: Vec<Arc<CertifiedKey>>,
    automatic: Option<AutomaticCertificates>,
}

/// The certificates that an ACME agent keeps. A client that requests a name whose certificate is missing gets none.
#[derive(Debug)]
struct AutomaticCertificates {
    folder: AcmeFolder,
    provider: Arc<CryptoProvider>,
    by_name: Vec<(String, Option<Arc<CertifiedKey>>)>,
}

impl Certificates {
    /// Reads the files that `options` names.
    ///
    /// # Errors
    /// A file cannot be used, or a key does not belong to its certificate.
    pub(crate) fn read(options: &Options, provider: &Arc<CryptoProvider>) -> Result<Self, Error> {
        let pairs = options.certificates.iter();
        let pairs = pairs
            .map(|(certificate, key)| pair(certificate, key, provider))
            .collect::<Result<_, _>>()?;
        let automatic = options.automatic.as_ref();
        // A damaged file counts as missing: the agent reports it, and replaces it.
        let automatic =
            automatic.map(|automatic| AutomaticCertificates::read(automatic, provider).0);
        Ok(Self { pairs, automatic })
    }

    /// Reads the files again. A pair that cannot be used is replaced by the pair that was read before, and the first
    /// such error is returned. The other pairs are renewed.
    pub(crate) fn renew(
        &self,
        options: &Options,
        provider: &Arc<CryptoProvider>,
    ) -> (Self, Result<(), Error>) {
        let mut outcome = Ok(());
        let pairs =
            options.certificates.iter().zip(&self.pairs).map(|((certificate, key), old)| {
                pair(certificate, key, provider).unwrap_or_else(|error| {
                    if outcome.is_ok() {
                        outcome = Err(error);
                    }
                    Arc::clone(old)
                })
            });
        let pairs = pairs.collect();
        let automatic = options.automatic.as_ref().map(|automatic| {
            let (mut renewed, error) = AutomaticCertificates::read(automatic, provider);
            renewed.keep(self.automatic.as_ref());
            (renewed, error)
        });
        let (automatic, error) = automatic.unzip();
        let outcome = outcome.and(error.flatten().map_or(Ok(()), Err));
        (Self { pairs, automatic }, outcome)
    }

    /// Whether a client that requests this name gets its certificate.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.automatic.as_ref().is_some_and(|automatic| automatic.find(name).is_some())
            || self.for_name(name).is_some()
    }

    fn for_name(&self, name: &str) -> Option<&Arc<CertifiedKey>> {
        let name = ServerName::try_from(name).ok()?;
        self.pairs.iter().find(|pair| {
            let own = pair.end_entity_cert().and_then(ParsedCertificate::try_from);
            own.is_ok_and(|own| verify_server_name(&own, &name).is_ok())
        })
    }
}

impl AutomaticCertificates {
    /// Reads the certificates that are there. Also returns the first error of a file that cannot be used.
    fn read(options: &Automatic, provider: &Arc<CryptoProvider>) -> (Self, Option<Error>) {
        let mut first_error = None;
        let by_name = options.names.iter().map(|name| {
            let path = options.folder.certificate(name);
            let found = match path.try_exists() {
                Ok(false) => None,
                _ => pair_for(&path, name, provider)
                    .inspect_err(|error| {
                        first_error.get_or_insert_with(|| error.clone());
                    })
                    .ok(),
            };
            (name.clone(), found)
        });
        let by_name = by_name.collect();
        (
            Self { folder: options.folder.clone(), provider: Arc::clone(provider), by_name },
            first_error,
        )
    }

    /// Takes over the certificates of `old` whose files are missing or damaged now.
    fn keep(&mut self, old: Option<&Self>) {
        for (name, found) in self.by_name.iter_mut().filter(|(_, found)| found.is_none()) {
            *found = old.and_then(|old| old.find(name)).cloned();
        }
    }

    fn find(&self, name: &str) -> Option<&Arc<CertifiedKey>> {
        let known = self.by_name.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        known.and_then(|(_, found)| found.as_ref())
    }

    /// Returns the answer to the challenge TLS-ALPN-01 for a name, if the agent has written one.
    fn answer(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        let (name, _) = self.by_name.iter().find(|(known, _)| known.eq_ignore_ascii_case(name))?;
        let path = self.folder.tls_answer(name);
        let (chain, key) = (files::certificates(&path).ok()?, files::key(&path).ok()?);
        // An answer is not checked, because the parser of certificates refuses the extension that an answer has.
        let key = self.provider.key_provider.load_private_key(key).ok()?;
        Some(Arc::new(CertifiedKey::new(chain, key)))
    }
}

/// Checks that a file holds a key and the certificate of a name. Returns the certificate in DER.
///
/// # Errors
/// The file cannot be used.
pub fn checked_certificate(path: &Path, name: &str) -> Result<Vec<u8>, Error> {
    let provider = rustls::crypto::ring::default_provider();
    let pair = pair_for(path, name, &provider)?;
    Ok(pair.cert[0].to_vec())
}

/// Makes this crate's provider of cryptography the default of the process, for crates that use the default.
pub fn install_provider() {
    // The call fails only if the process has a default provider already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Reads a file with a key and the certificate of a name.
fn pair_for(
    path: &Path,
    name: &str,
    provider: &CryptoProvider,
) -> Result<Arc<CertifiedKey>, Error> {
    let found = pair(path, path, provider)?;
    let wanted = ServerName::try_from(name).map_err(|error| Error::file(path, error))?;
    let own = found.end_entity_cert().and_then(ParsedCertificate::try_from);
    own.and_then(|own| verify_server_name(&own, &wanted))
        .map_err(|_| Error::file(path, format!("it is not a certificate of {name}")))?;
    Ok(found)
}

/// Reads a certificate and its key.
fn pair(
    certificate: &Path,
    key: &Path,
    provider: &CryptoProvider,
) -> Result<Arc<CertifiedKey>, Error> {
    let chain = files::certificates(certificate)?;
    ParsedCertificate::try_from(&chain[0]).map_err(|error| match error {
        rustls::Error::InvalidCertificate(error) => {
            let reason = format!("it is not an X.509 certificate of version 3 ({error})");
            Error::file(certificate, reason)
        }
        error => Error::file(certificate, error),
    })?;
    let pair = CertifiedKey::from_der(chain, files::key(key)?, provider);
    pair.map(Arc::new).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            let reason = format!("it is not the key of {}", printable::path(&certificate));
            Error::file(key, reason)
        }
        rustls::Error::General(_) => Error::file(key, UNKNOWN_KEY),
        error => Error::file(key, error),
    })
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name();
        let Some(automatic) = &self.automatic else {
            let own = name.filter(|_| self.pairs.len() > 1).and_then(|name| self.for_name(name));
            return own.or(self.pairs.first()).cloned();
        };
        if hello.alpn().is_some_and(|offered| offered.eq([ACME])) {
            return automatic.answer(name?);
        }
        match name {
            Some(name) => automatic.find(name).or_else(|| self.for_name(name)).cloned(),
            None => {
                let mut all = automatic.by_name.iter().filter_map(|(_, found)| found.as_ref());
                all.next().or(self.pairs.first()).cloned()
            }
        }
    }
}
