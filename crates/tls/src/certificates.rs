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
use crate::{Error, Options};

/// The error for a key of an unsupported kind, since the provider's message does not name the limits.
const UNKNOWN_KEY: &str =
    "its key is not RSA of 2048 to 4096 bits, ECDSA with P-256 or P-384, or Ed25519";

/// The certificates of a listener, with their keys. A client receives the first certificate that is valid for the name
/// that it requests, or the first certificate if it requests no name or an unknown one.
#[derive(Debug)]
pub(crate) struct Certificates(Vec<Arc<CertifiedKey>>);

impl Certificates {
    /// Reads the files that `options` names.
    ///
    /// # Errors
    /// A file cannot be used, or a key does not belong to its certificate.
    pub(crate) fn read(options: &Options, provider: &CryptoProvider) -> Result<Self, Error> {
        let pairs = options.certificates.iter();
        pairs
            .map(|(certificate, key)| pair(certificate, key, provider))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Reads the files again. A pair that cannot be used is replaced by the pair that was read before, and the first
    /// such error is returned. The other pairs are renewed.
    pub(crate) fn renew(
        &self,
        options: &Options,
        provider: &CryptoProvider,
    ) -> (Self, Result<(), Error>) {
        let mut outcome = Ok(());
        let pairs = options.certificates.iter().zip(&self.0).map(|((certificate, key), old)| {
            pair(certificate, key, provider).unwrap_or_else(|error| {
                if outcome.is_ok() {
                    outcome = Err(error);
                }
                Arc::clone(old)
            })
        });
        let renewed = Self(pairs.collect());
        (renewed, outcome)
    }

    fn for_name(&self, name: &str) -> Option<&Arc<CertifiedKey>> {
        let name = ServerName::try_from(name).ok()?;
        self.0.iter().find(|pair| {
            let own = pair.end_entity_cert().and_then(ParsedCertificate::try_from);
            own.is_ok_and(|own| verify_server_name(&own, &name).is_ok())
        })
    }
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
            let reason = format!("it is no certificate of X.509 version 3 ({error})");
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
        let own = match hello.server_name() {
            Some(name) if self.0.len() > 1 => self.for_name(name),
            _ => None,
        };
        own.or(self.0.first()).cloned()
    }
}
