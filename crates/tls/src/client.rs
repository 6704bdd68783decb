//! Sessions of a client that measures a server.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConfig, ClientConnection, Resumption};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};

use crate::{Error, Session};

/// Creates sessions with a server, each with a full handshake.
///
/// The client does not verify the server's certificate, only that the server has the key. The measured server is known,
/// and usually has a certificate that no authority has signed.
#[derive(Debug, Clone)]
pub struct ClientContext {
    config: Arc<ClientConfig>,
    server: ServerName<'static>,
}

impl ClientContext {
    /// Creates a context for the server with this name or address. `protocol` is the ALPN name of the protocol to
    /// negotiate.
    ///
    /// # Errors
    /// `server` is not a valid name.
    pub fn new(server: &str, protocol: &[u8]) -> Result<Self, Error> {
        let server = ServerName::try_from(server.to_owned()).map_err(Error::setting)?;
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(Error::setting)?;
        let mut config = builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        config.resumption = Resumption::disabled();
        Ok(Self { config: Arc::new(config), server })
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

/// Accepts any certificate whose key the server has.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _chain: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
