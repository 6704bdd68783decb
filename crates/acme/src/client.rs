//! Requests to the authority, which block.
//!
//! The ACME crate is asynchronous, and asks its client for a future. Ours has its response before it returns, so each
//! future of the crate is ready when it is first polled, and no runtime is needed.

use std::future::Future;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Collected};
use instant_acme::{BodyWrapper, BytesResponse, HttpClient};
use ureq::Agent;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

use crate::error::Error;

/// The maximum time for a request, from the lookup of the host to the last byte of the response.
const REQUEST_MAX: Duration = Duration::from_secs(60);

/// The maximum size of a response in bytes: a chain of certificates is the largest one.
const RESPONSE_BYTES_MAX: u64 = 1 << 20;

/// A client of an authority.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    agent: Agent,
    /// The pause in seconds that the last response has asked for; 0 for none.
    retry_after_s: Arc<AtomicU64>,
}

impl Client {
    /// Creates a client that trusts the certificates in the file `ca`, or else the system's.
    ///
    /// # Errors
    /// No certificate to trust is found.
    pub(crate) fn new(ca: Option<&Path>) -> Result<Self, Error> {
        thruway_tls::install_provider();
        let roots = match ca {
            Some(path) => roots_in(path)?,
            None => roots_of_system()?,
        };
        let tls = TlsConfig::builder().root_certs(RootCerts::new_with_certs(&roots)).build();
        let config = Agent::config_builder()
            .tls_config(tls)
            .https_only(true)
            .http_status_as_error(false)
            .max_redirects(3)
            .timeout_global(Some(REQUEST_MAX))
            .build();
        Ok(Self { agent: config.into(), retry_after_s: Arc::default() })
    }

    /// Returns the pause in seconds that the last response requested, if any.
    pub(crate) fn retry_after_s(&self) -> Option<u64> {
        Some(self.retry_after_s.load(Relaxed)).filter(|seconds| *seconds > 0)
    }

    fn send(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Result<BytesResponse, instant_acme::Error> {
        let (parts, body) = request.into_parts();
        let other = instant_acme::Error::Other;
        let Ok(body) = finish(body.collect()).map(Collected::to_bytes);
        let response = if matches!(parts.method, Method::GET | Method::HEAD) {
            self.agent.run(Request::from_parts(parts, ()))
        } else {
            self.agent.run(Request::from_parts(parts, &body[..]))
        };
        let response = response.map_err(|error| other(Box::new(error)))?;
        let (parts, mut body) = response.into_parts();
        let pause_s =
            parts.headers.get("retry-after").and_then(|value| pause_s(value.to_str().ok()?));
        self.retry_after_s.store(pause_s.unwrap_or(0), Relaxed);
        let body = body.with_config().limit(RESPONSE_BYTES_MAX).read_to_vec();
        let body = Bytes::from(body.map_err(|error| other(Box::new(error)))?);
        let (parts, ()) = Response::from_parts(parts, ()).into_parts();
        Ok(BytesResponse { parts, body: Box::new(body) })
    }
}

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, instant_acme::Error>> + Send>> {
        Box::pin(std::future::ready(self.send(request)))
    }
}

/// Returns the output of a future that never waits.
pub(crate) fn finish<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("the client has its responses before the future is polled"),
    }
}

/// Reads `Retry-After`: a number of seconds, or a date.
fn pause_s(value: &str) -> Option<u64> {
    let value = value.trim();
    let until = || {
        let until = httpdate::parse_http_date(value).ok()?;
        until.duration_since(SystemTime::now()).ok().map(|pause| pause.as_secs())
    };
    value.parse().ok().or_else(until)
}

fn roots_in(path: &Path) -> Result<Vec<Certificate<'static>>, Error> {
    let text = std::fs::read(path).map_err(|error| Error::file("read", path, &error))?;
    let items = parse_pem(&text).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    let roots: Vec<_> = items.collect();
    if roots.is_empty() {
        let path = thruway_sys::printable::path(path);
        return Err(Error::new(format_args!("cannot use {path}: it holds no certificate in PEM")));
    }
    Ok(roots)
}

fn roots_of_system() -> Result<Vec<Certificate<'static>>, Error> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        let error = Error::new("cannot trust any authority: the system has no root certificates");
        return Err(error.hint("install the package ca-certificates, or give --acme-ca FILE"));
    }
    Ok(found.certs.iter().map(|root| Certificate::from_der(root).to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_a_number_of_seconds_or_a_date() {
        assert_eq!(pause_s(" 120 "), Some(120));
        assert_eq!(pause_s("Fri, 31 Dec 1999 23:59:59 GMT"), None, "that time is over");
        let later = SystemTime::now() + Duration::from_secs(1000);
        let pause_s = pause_s(&httpdate::fmt_http_date(later)).unwrap();
        assert!((900..=1000).contains(&pause_s));
        assert_eq!(super::pause_s("soon"), None);
    }
}
