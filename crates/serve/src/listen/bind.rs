//! The configuration of a listener: an address, and the parameters that Puma allows after `?`.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use thruway_tls::Options as TlsOptions;

use crate::listen::address::Address;
use crate::listen::secure_site::{self, SecureSite};

/// The maximum number of connections that wait to be accepted; the system's own limit applies as well.
const BACKLOG: i32 = 1024;

/// The permissions of a socket without a umask: every user may connect, as with Puma.
const PERMISSIONS: u32 = 0o777;

/// An address, and the options of its listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind {
    /// The address.
    pub address: Address,
    /// The maximum number of connections that wait to be accepted (`?backlog=`).
    pub backlog: i32,
    /// Whether packets are sent without delay (`?low_latency=`, TCP only).
    pub low_latency: bool,
    /// Permissions withheld from every user (`?umask=`, unix sockets only).
    pub umask: u32,
    /// Permissions in place of those of the umask, such as `0o660` (`?mode=`, unix sockets only).
    pub mode: Option<u32>,
    /// The TLS options of `ssl://`, certificates among them; none for `tcp://` and `unix://`.
    pub tls: Option<Arc<TlsOptions>>,
    /// How long browsers are to use only TLS for the host, in seconds (`?hsts=`, TLS only).
    pub hsts_s: Option<u64>,
    /// The rules for plain HTTP beside a TLS listener whose certificates an ACME agent keeps (`?acme=`, TCP only).
    pub site: Option<Arc<SecureSite>>,
}

impl From<Address> for Bind {
    fn from(address: Address) -> Self {
        Self {
            address,
            backlog: BACKLOG,
            low_latency: true,
            umask: 0,
            mode: None,
            tls: None,
            hsts_s: None,
            site: None,
        }
    }
}

impl Bind {
    /// The permissions of a unix socket.
    pub(crate) fn permissions(&self) -> u32 {
        self.mode.unwrap_or(PERMISSIONS & !self.umask)
    }
}

/// Parses `tcp://HOST:PORT`, `ssl://HOST:PORT` and `unix://PATH` with parameters in Puma's syntax.
impl FromStr for Bind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (place, query) = text.split_once('?').unwrap_or((text, ""));
        let address = address(place)?;
        let is_unix = matches!(address, Address::Unix { .. });
        let mut tls = place.starts_with("ssl://").then(TlsOptions::default);
        let mut bind = Self::from(address);
        let mut site = None;
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let wrong = || format!("{parameter:?} is not understood in {place}");
            if let Some(tls) = &mut tls
                && tls.take(name, value).map_err(|wrong| format!("{place}: {wrong}"))?
            {
                continue;
            }
            if tls.is_none()
                && !is_unix
                && secure_site::take(&mut site, name, value)
                    .map_err(|wrong| format!("{place}: {wrong}"))?
            {
                continue;
            }
            match name {
                "hsts" if tls.is_some() => bind.hsts_s = Some(value.parse().map_err(|_| wrong())?),
                "backlog" => bind.backlog = value.parse().map_err(|_| wrong())?,
                "low_latency" if !is_unix => bind.low_latency = value != "false",
                "umask" if is_unix => bind.umask = integer(value).ok_or_else(wrong)?,
                "mode" if is_unix => {
                    bind.mode = Some(u32::from_str_radix(value, 8).map_err(|_| wrong())?);
                }
                // The error omits the value, which may be a key: for Puma, `key_pem` is one.
                _ if tls.is_some() || restricts(name) => {
                    return Err(format!("{name:?} is not understood in {place}"));
                }
                // Puma ignores unknown parameters, and real configurations have some.
                _ => {}
            }
        }
        let tls = tls.map(TlsOptions::finish).transpose();
        bind.site = site.map(Arc::new);
        bind.tls = tls.map_err(|wrong| format!("{place} {wrong}"))?.map(Arc::new);
        Ok(bind)
    }
}

/// Whether a parameter restricts the clients that may connect: ignoring it would admit others.
fn restricts(name: &str) -> bool {
    let names = ["umask", "mode", "cert", "key", "ca", "verify_mode", "verification_flags"];
    names.contains(&name) || name.starts_with("ssl_") || name.ends_with("_pem")
}

/// Parses an address. Puma reads addresses as URIs: `unix:/path` is `unix:///path`, and a host may be missing.
fn address(text: &str) -> Result<Address, String> {
    let path = text.strip_prefix("unix://");
    let path = path.or_else(|| text.strip_prefix("unix:").filter(|path| path.starts_with('/')));
    if let Some(path) = path.filter(|path| !path.is_empty()) {
        return Ok(Address::Unix { path: PathBuf::from(path.replace("%20", " ")) });
    }
    let name = if text.is_empty() { "an empty address" } else { text };
    let wrong = || format!("{name} is none of tcp://HOST:PORT, ssl://HOST:PORT and unix://PATH");
    let rest = match text.split_once("://") {
        Some(("tcp" | "ssl", rest)) => rest.strip_suffix('/').unwrap_or(rest),
        Some(_) => return Err(wrong()),
        None => text,
    };
    let (host, port) = rest.rsplit_once(':').ok_or_else(wrong)?;
    let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    if host.contains('/') || host.is_empty() && !text.contains("://") {
        return Err(wrong());
    }
    let host = if host.is_empty() { "0.0.0.0" } else { host };
    let port = port.parse().map_err(|_| format!("{port:?} is not a port"))?;
    Ok(Address::Tcp { host: host.to_owned(), port })
}

/// Parses a number as Ruby's `Integer()` does: octal after `0`, hexadecimal after `0x`, binary after `0b`.
fn integer(text: &str) -> Option<u32> {
    let radix = |digits, radix| u32::from_str_radix(digits, radix).ok();
    match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => radix(&text[2..], 16),
        [b'0', b'b' | b'B', ..] => radix(&text[2..], 2),
        [b'0', b'o' | b'O', ..] => radix(&text[2..], 8),
        [b'0', ..] => radix(text, 8),
        _ => radix(text, 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Bind {
        Address::Tcp { host: host.into(), port }.into()
    }

    fn unix(path: &str) -> Bind {
        Address::Unix { path: path.into() }.into()
    }

    #[test]
    fn an_address_is_read_as_it_is_written() {
        assert_eq!("tcp://0.0.0.0:80".parse(), Ok(tcp("0.0.0.0", 80)));
        assert_eq!("localhost:9292".parse(), Ok(tcp("localhost", 9292)));
        assert_eq!("tcp://[::1]:80".parse(), Ok(tcp("::1", 80)));
        assert_eq!("unix:///run/app.sock".parse(), Ok(unix("/run/app.sock")));
        assert_eq!("unix://a%20b".parse(), Ok(unix("a b")));
        assert_eq!("unix:/run/app.sock".parse(), Ok(unix("/run/app.sock")));
        assert_eq!("tcp://:80".parse(), Ok(tcp("0.0.0.0", 80)));
        assert_eq!("tcp://a:80/".parse(), Ok(tcp("a", 80)));
        assert_eq!(tcp("::1", 80).address.to_string(), "http://[::1]:80");
    }

    #[test]
    fn parameters_mean_what_they_mean_for_puma() {
        let parse = |text: &str| text.parse::<Bind>().unwrap();
        assert_eq!(parse("unix://a?mode=0660"), Bind { mode: Some(0o660), ..unix("a") });
        assert_eq!(parse("unix://a?mode=660"), Bind { mode: Some(0o660), ..unix("a") });
        assert_eq!(parse("unix://a?umask=0111"), Bind { umask: 0o111, ..unix("a") });
        assert_eq!(parse("unix://a?umask=73"), Bind { umask: 0o111, ..unix("a") });
        let both = Bind { umask: 0o111, backlog: 5, ..unix("a") };
        assert_eq!(parse("unix://a?umask=0x49&backlog=5"), both);
        assert_eq!(parse("tcp://a:1?backlog=5"), Bind { backlog: 5, ..tcp("a", 1) });
        assert_eq!(parse("tcp://a:1?low_latency=true"), tcp("a", 1));
        assert_eq!(parse("tcp://a:1?low_latency"), tcp("a", 1));
        let slow = Bind { low_latency: false, ..tcp("a", 1) };
        assert_eq!(parse("tcp://a:1?low_latency=false"), slow);
    }

    #[test]
    fn a_parameter_that_restricts_nothing_may_be_unknown() {
        assert_eq!("tcp://a:1?optimize_for_latency=true&reuse=1".parse(), Ok(tcp("a", 1)));
        assert_eq!("unix://a?low_latency=true".parse(), Ok(unix("a")));
    }

    #[test]
    fn an_address_of_tls_names_its_certificates() {
        let bind: Bind = "ssl://[::1]:443?cert=a.pem&key=a.key&backlog=5".parse().unwrap();
        assert_eq!((bind.address, bind.backlog), (tcp("::1", 443).address, 5));
        assert_eq!(bind.tls.unwrap().certificates, [("a.pem".into(), "a.key".into())]);
    }

    #[test]
    fn malformed_binds_are_refused() {
        for wrong in [
            "80",
            ":80",
            "unix:",
            "unix:a",
            "tcp://a:1/b",
            "tcp://a",
            "tcp://a:b",
            "unix://",
            "unix://a?mode=rw",
            "unix://a?cert=b",
            "tcp://a:1?umask=0",
            "tcp://a:1?backlog=many",
            "tcp://a:1?mode=600",
            "tcp://a:1?verify_mode=peer",
            "tcp://a:1?key_pem=a",
            "tcp://a:1?cert=a",
            "ssl://a:1?cert=a&umask=0",
            "ssl://a:1?backlog=5",
        ] {
            assert!(wrong.parse::<Bind>().is_err(), "{wrong}");
        }
        let error = |text: &str| text.parse::<Bind>().unwrap_err();
        assert_eq!(
            error("foo://bar"),
            "foo://bar is none of tcp://HOST:PORT, ssl://HOST:PORT and unix://PATH"
        );
        let unknown = error("ssl://a:80?cert=a&key=b&key_pem=secret&backlog=5");
        assert_eq!(unknown, "\"key_pem\" is not understood in ssl://a:80");
        let missing = "ssl://a:80 names no certificate: add ?cert=FILE&key=FILE";
        assert_eq!(error("ssl://a:80"), missing);
        assert_eq!(error("ssl://a:80?key=b"), "ssl://a:80: key= follows its cert=");
    }
}
