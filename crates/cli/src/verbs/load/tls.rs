//! The options of TLS, and the address to which connections are made.

use std::path::PathBuf;

use clap::Args;
use thruway_load::{ClientOptions, Trust, Url};

use crate::output::Failure;

/// The options of a URL with https or wss.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "TLS")]
pub(super) struct TlsOptions {
    /// Accept any certificate, and thus any server at that address
    #[arg(short = 'k', long)]
    insecure: bool,
    /// Certificates to trust instead of the system's: authorities, or that of the server itself
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    cacert: Option<PathBuf>,
    /// The client's certificate
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// The key of the client's certificate
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// The server's name in the handshake (SNI) and in its certificate, instead of the URL's host
    #[arg(long, value_name = "NAME")]
    sni: Option<String>,
}

impl TlsOptions {
    /// Returns the name of the server, if it differs from the URL's host.
    pub(super) fn name(&self) -> Option<&str> {
        self.sni.as_deref()
    }

    pub(super) fn client(&self) -> ClientOptions {
        let trust = match &self.cacert {
            _ if self.insecure => Trust::Anyone,
            Some(path) => Trust::File(path.clone()),
            None => Trust::System,
        };
        ClientOptions { trust, certificate: self.cert.clone().zip(self.key.clone()) }
    }

    /// Refuses options that would have no effect.
    pub(super) fn check(&self, url: &Url) -> Result<(), Failure> {
        let given = [
            (self.insecure, "--insecure"),
            (self.cacert.is_some(), "--cacert"),
            (self.cert.is_some(), "--cert"),
            (self.sni.is_some(), "--sni"),
        ];
        match given.into_iter().find(|(is_given, _)| *is_given) {
            Some((_, option)) if !url.is_tls() => {
                Err(Failure::new(format_args!("{option} has no effect in this run"))
                    .hint("the option is for URLs with https or wss"))
            }
            _ => Ok(()),
        }
    }
}
