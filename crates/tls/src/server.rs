//! The TLS state of a listener.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::CertificateDer;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ServerConfig, ServerConnection, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};

use crate::certificates::Certificates;
use crate::files::{self, Stamp};
use crate::session::{ACME, HTTP2};
use crate::tickets::Tickets;
use crate::{Automatic, Error, Options, Session, TicketKeys, Verify};

/// The protocols that are offered to clients by ALPN.
const PROTOCOLS: [&[u8]; 2] = [HTTP2, b"http/1.1"];

/// The number of tickets after a handshake. Browsers open a few connections at once, and use each ticket once.
const TICKETS_PER_HANDSHAKE: usize = 2;

/// Creates the sessions of a listener.
#[derive(Debug)]
pub struct ServerContext {
    options: Options,
    keys: Arc<TicketKeys>,
    provider: Arc<CryptoProvider>,
    has_http2: bool,
    certificates: Arc<Certificates>,
    config: Arc<ServerConfig>,
    stamps: Vec<Option<Stamp>>,
}

impl ServerContext {
    /// Reads the files that `options` names. With `has_http2`, clients are offered HTTP/2 as well.
    ///
    /// # Errors
    /// A file cannot be used.
    pub fn new(options: Options, keys: Arc<TicketKeys>, has_http2: bool) -> Result<Self, Error> {
        let provider = Arc::new(ring::default_provider());
        let stamps = stamps(&options);
        let certificates = Arc::new(Certificates::read(&options, &provider)?);
        let config = config(&options, &keys, &provider, has_http2, &certificates)?;
        Ok(Self { options, keys, provider, has_http2, certificates, config, stamps })
    }

    /// Creates a session for a client that has just connected.
    ///
    /// # Errors
    /// None with the settings that this context uses.
    pub fn begin(&self) -> Result<Session, Error> {
        let connection = ServerConnection::new(Arc::clone(&self.config));
        connection.map(|connection| Session::new(connection.into())).map_err(Error::setting)
    }

    /// Returns the certificates that an ACME agent keeps, if there is one.
    #[must_use]
    pub fn automatic(&self) -> Option<&Automatic> {
        self.options.automatic.as_ref()
    }

    /// Whether a client that requests this name gets its certificate.
    #[must_use]
    pub fn has_certificate(&self, name: &str) -> bool {
        self.certificates.has(name)
    }

    /// Reads the files again if one of them has changed since the last read. Existing sessions are not affected.
    ///
    /// # Errors
    /// A file cannot be used. The previous content stays in use until a file changes again. After a temporary error,
    /// the next call tries again.
    pub fn reload_if_changed(&mut self) -> Result<bool, Error> {
        let stamps = stamps(&self.options);
        if stamps == self.stamps {
            return Ok(false);
        }
        let reloaded = self.reload();
        if !reloaded.as_ref().is_err_and(Error::is_passing) {
            self.stamps = stamps;
        }
        reloaded.map(|()| true)
    }

    /// Reads the files again.
    ///
    /// # Errors
    /// As for [`reload_if_changed`](Self::reload_if_changed).
    pub fn reload(&mut self) -> Result<(), Error> {
        let (renewed, outcome) = self.certificates.renew(&self.options, &self.provider);
        let renewed = Arc::new(renewed);
        self.config = config(&self.options, &self.keys, &self.provider, self.has_http2, &renewed)?;
        self.certificates = renewed;
        outcome
    }
}

fn stamps(options: &Options) -> Vec<Option<Stamp>> {
    let pairs = options.certificates.iter().flat_map(|(certificate, key)| [certificate, key]);
    let automatic = options.automatic.iter().flat_map(|automatic| {
        automatic.names.iter().map(|name| files::stamp(&automatic.folder.certificate(name)))
    });
    pairs.chain(&options.ca).map(|path: &PathBuf| files::stamp(path)).chain(automatic).collect()
}

fn config(
    options: &Options,
    keys: &Arc<TicketKeys>,
    provider: &Arc<CryptoProvider>,
    has_http2: bool,
    certificates: &Arc<Certificates>,
) -> Result<Arc<ServerConfig>, Error> {
    let versions = if options.is_only_tls13 { &[&TLS13][..] } else { &[&TLS13, &TLS12] };
    let builder = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(versions)
        .map_err(Error::setting)?;
    let authorities = match (&options.ca, options.verify) {
        (Some(ca), Verify::Peer | Verify::ForcePeer) => files::certificates(ca)?,
        _ => Vec::new(),
    };
    let builder = match options.verify {
        Verify::None => builder.with_no_client_auth(),
        _ => builder.with_client_cert_verifier(verifier(options, &authorities, provider)?),
    };
    let mut config = builder.with_cert_resolver(Arc::<Certificates>::clone(certificates));
    let protocols = &PROTOCOLS[usize::from(!has_http2)..];
    let challenge = options.automatic.is_some().then_some(ACME);
    let protocols = protocols.iter().copied().chain(challenge);
    config.alpn_protocols = protocols.map(<[u8]>::to_vec).collect();
    config.send_tls13_tickets = TICKETS_PER_HANDSHAKE;
    config.ticketer = Arc::new(Tickets::new(Arc::clone(keys), rules(options, &authorities)));
    Ok(Arc::new(config))
}

fn verifier(
    options: &Options,
    authorities: &[CertificateDer<'static>],
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    let failed = |reason: &dyn std::fmt::Display| match &options.ca {
        Some(ca) => Error::file(ca, reason),
        None => Error::setting(reason),
    };
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority.clone()).map_err(|error| failed(&error))?;
    }
    let builder =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    let builder = match options.verify {
        Verify::Peer => builder.allow_unauthenticated(),
        _ => builder,
    };
    builder.build().map_err(|error| failed(&error))
}

/// Returns the requirements of this listener on clients as bytes, to which tickets are bound.
fn rules(options: &Options, authorities: &[CertificateDer<'static>]) -> Vec<u8> {
    let word = match options.verify {
        Verify::None => "none",
        Verify::Peer => "peer",
        Verify::ForcePeer => "force_peer",
    };
    let mut hash = ::ring::digest::Context::new(&::ring::digest::SHA256);
    hash.update(word.as_bytes());
    authorities.iter().for_each(|authority| hash.update(authority));
    hash.finish().as_ref().to_vec()
}
