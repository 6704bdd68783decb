//! The client's end of sessions, for `thruway load`, which measures servers.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{
    ClientConfig, ClientConnection, Resumption, WebPkiServerVerifier, verify_server_name,
};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::{Error, Session, files};

/// The certificates that a client trusts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Trust {
    /// Those of the system's authorities, and those that `SSL_CERT_FILE` and `SSL_CERT_DIR` name.
    #[default]
    System,
    /// Those in this file: authorities, and certificates of servers. A server's certificate is trusted even if it has
    /// expired.
    File(PathBuf),
    /// Any certificate, if the server has its key. A measured server on this machine usually has a self-signed
    /// certificate.
    Anyone,
}

/// The settings of a client.
#[derive(Debug, Clone, Default)]
pub struct ClientOptions {
    /// The certificates that the client trusts.
    pub trust: Trust,
    /// The files of the client's own certificate and of its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

/// Creates sessions with a server, each with a full handshake.
#[derive(Debug, Clone)]
pub struct ClientContext {
    config: Arc<ClientConfig>,
    server: ServerName<'static>,
}

impl ClientContext {
    /// Creates a context for the server with this name or address, which is sent (SNI) and compared with the server's
    /// certificate. `protocol` is the ALPN name of the protocol to negotiate.
    ///
    /// # Errors
    /// `server` is not a valid name, or a file cannot be used.
    pub fn new(server: &str, protocol: &[u8], options: &ClientOptions) -> Result<Self, Error> {
        let name = ServerName::try_from(server.to_owned())
            .map_err(|_| Error::setting(format_args!("{server:?} is not a valid server name")))?;
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(Error::setting)?
            .dangerous()
            .with_custom_certificate_verifier(verifier(&options.trust, provider)?);
        let mut config = match &options.certificate {
            Some((certificate, key)) => builder
                .with_client_auth_cert(files::certificates(certificate)?, files::key(key)?)
                .map_err(|error| Error::file(certificate, error))?,
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![protocol.to_vec()];
        config.resumption = Resumption::disabled();
        Ok(Self { config: Arc::new(config), server: name })
    }

    /// Creates a session for a new connection. The first bytes to send are available at once.
    ///
    /// # Errors
    /// None with the settings that this function uses.
    pub fn begin(&self) -> Result<Session, Error> {
        let connection = ClientConnection::new(Arc::clone(&self.config), self.server.clone());
        connection.map(|connection| Session::new(connection.into())).map_err(Error::setting)
    }
}

fn verifier(
    trust: &Trust,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, Error> {
    let known = match trust {
        Trust::Anyone => return Ok(Arc::new(Verifier { trusted: None, provider })),
        Trust::File(path) => files::certificates(path)?,
        Trust::System => rustls_native_certs::load_native_certs().certs,
    };
    let mut roots = RootCertStore::empty();
    // A certificate that is no authority's may still be that of the server.
    let _ = roots.add_parsable_certificates(known.iter().cloned());
    if roots.is_empty() {
        return Err(match trust {
            Trust::File(path) => Error::file(path, "it holds no certificate that can be used"),
            _ => Error::setting("no authority is trusted: the system has no certificates"),
        });
    }
    let authorities =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .map_err(Error::setting)?;
    let pinned = if matches!(trust, Trust::File(_)) { known } else { Vec::new() };
    Ok(Arc::new(Verifier { trusted: Some(TrustedCertificates { authorities, pinned }), provider }))
}

/// The certificates that a client trusts.
#[derive(Debug)]
struct TrustedCertificates {
    /// Those that an authority has signed.
    authorities: Arc<WebPkiServerVerifier>,
    /// Those of servers, whoever has signed them.
    pinned: Vec<CertificateDer<'static>>,
}

/// Accepts a server that has the key of a trusted certificate, or of any certificate if none is named.
#[derive(Debug)]
struct Verifier {
    trusted: Option<TrustedCertificates>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(trusted) = &self.trusted else { return Ok(ServerCertVerified::assertion()) };
        let verified = trusted.authorities.verify_server_cert(certificate, chain, name, ocsp, now);
        if verified.is_err() && trusted.pinned.contains(certificate) {
            verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
            return Ok(ServerCertVerified::assertion());
        }
        verified
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
