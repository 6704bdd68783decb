//! The source of a client's address: the connection, or the report of a trusted proxy.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use thruway_http1::Request;
use thruway_http1::proxy::ProxyVersion;

use crate::listen::listener::Peer;
use crate::listen::trust::Trust;

/// The source of a client's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientSource {
    /// The peer of the connection.
    #[default]
    Socket,
    /// The PROXY head with which a trusted proxy has to begin each connection.
    Proxy(ProxyVersion),
    /// `X-Forwarded-For` of a trusted proxy.
    XForwardedFor,
    /// `Forwarded` of a trusted proxy (RFC 7239).
    Forwarded,
}

impl FromStr for ClientSource {
    type Err = String;

    /// Parses `socket`, `proxy_v1`, `proxy_v2`, `x_forwarded_for` or `forwarded`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "socket" => Ok(Self::Socket),
            "proxy_v1" => Ok(Self::Proxy(ProxyVersion::V1)),
            "proxy_v2" => Ok(Self::Proxy(ProxyVersion::V2)),
            "x_forwarded_for" => Ok(Self::XForwardedFor),
            "forwarded" => Ok(Self::Forwarded),
            _ => Err(format!("{text:?} is not a source of client addresses")),
        }
    }
}

impl ClientSource {
    /// The version of the PROXY head at the start of connections.
    pub(crate) fn proxy_version(self) -> Option<ProxyVersion> {
        match self {
            Self::Proxy(version) => Some(version),
            _ => None,
        }
    }

    /// Whether each request of a connection may have another client.
    pub(crate) fn is_of_request(self) -> bool {
        matches!(self, Self::XForwardedFor | Self::Forwarded)
    }

    /// The client of a request that a trusted `peer` has sent.
    ///
    /// A client can write any text before the part that the proxies add. So the list is read from its end: the last
    /// address that is not a proxy's is the client's.
    pub(crate) fn client(self, request: &Request<'_>, peer: Peer, trust: &Trust) -> Peer {
        let field: &[u8] = match self {
            Self::XForwardedFor => b"x-forwarded-for",
            Self::Forwarded => b"forwarded",
            Self::Socket | Self::Proxy(_) => return peer,
        };
        let values = request
            .fields()
            .filter_map(|(name, value)| name.eq_ignore_ascii_case(field).then_some(value));
        let elements: Vec<&[u8]> =
            values.flat_map(|value| value.split(|byte| *byte == b',')).collect();
        let mut client = peer;
        for element in elements.iter().rev() {
            let node =
                if self == Self::Forwarded { parameter(element, b"for") } else { Some(*element) };
            let Some(address) = node.and_then(address_of) else { break };
            client = Peer::Tcp(address);
            if !trust.includes_address(address.ip()) {
                break;
            }
        }
        client
    }

    /// Whether a trusted proxy reports in `Forwarded` that the client speaks TLS.
    pub(crate) fn is_https(self, request: &Request<'_>) -> bool {
        let mut fields = request.fields();
        self == Self::Forwarded
            && fields.any(|(name, value)| {
                let first = value.split(|byte| *byte == b',').next().unwrap_or_default();
                name.eq_ignore_ascii_case(b"forwarded")
                    && parameter(first, b"proto").is_some_and(|p| p.eq_ignore_ascii_case(b"https"))
            })
    }
}

/// The value of a parameter in an element of `Forwarded`, without quotes.
fn parameter<'a>(element: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    element.split(|byte| *byte == b';').find_map(|pair| {
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        let value = pair[equals + 1..].trim_ascii();
        let is_meant = pair[..equals].trim_ascii().eq_ignore_ascii_case(name);
        let quoted = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
        is_meant.then(|| quoted.unwrap_or(value))
    })
}

/// Parses an address with or without a port; IPv6 with or without brackets.
fn address_of(node: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(node.trim_ascii()).ok()?;
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let bare = inner.parse::<IpAddr>().ok().map(|address| SocketAddr::new(address, 0));
    let address: SocketAddr = bare.or_else(|| text.parse().ok())?;
    Some(SocketAddr::new(address.ip().to_canonical(), address.port()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use thruway_http1::{Head, Limits};

    fn with_request<T>(fields: &str, look: impl FnOnce(&Request<'_>) -> T) -> T {
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let mut head = Head::new();
        assert_eq!(head.parse(text.as_bytes(), 0, &Limits::default()), Ok(true));
        look(&head.request(text.as_bytes()))
    }

    fn client(source: ClientSource, fields: &str) -> String {
        with_request(fields, |request| {
            match source.client(request, Peer::Unix, &Trust::default()) {
                Peer::Tcp(address) => address.to_string(),
                Peer::Unix => "unix".into(),
            }
        })
    }

    #[test]
    fn the_last_address_that_is_no_proxy_is_the_client() {
        let of = |fields| client(ClientSource::XForwardedFor, fields);
        for (fields, expected) in [
            ("", "unix"),
            ("X-Forwarded-For: 192.0.2.1\r\n", "192.0.2.1:0"),
            ("X-Forwarded-For: 6.6.6.6, 192.0.2.1, 10.0.0.1\r\n", "192.0.2.1:0"),
            ("X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-For: 192.0.2.1\r\n", "192.0.2.1:0"),
            ("X-Forwarded-For: 10.0.0.2, 10.0.0.1\r\n", "10.0.0.2:0"),
            ("X-Forwarded-For: 6.6.6.6, unknown, 10.0.0.1\r\n", "10.0.0.1:0"),
            ("X-Forwarded-For: 2001:db8::1\r\n", "[2001:db8::1]:0"),
            ("X-Forwarded-For: [2001:db8::1]:99\r\n", "[2001:db8::1]:99"),
            ("X-Forwarded-For: 192.0.2.1:99\r\n", "192.0.2.1:99"),
            ("X-Forwarded-For: \r\n", "unix"),
            ("Forwarded: for=192.0.2.1\r\n", "unix"),
        ] {
            assert_eq!(of(fields), expected, "{fields}");
        }
    }

    #[test]
    fn forwarded_is_read_as_the_rfc_writes_it() {
        let of = |fields| client(ClientSource::Forwarded, fields);
        for (fields, expected) in [
            ("Forwarded: for=6.6.6.6, For=192.0.2.43;proto=https\r\n", "192.0.2.43:0"),
            ("Forwarded: for=\"[2001:db8:cafe::17]:4711\"\r\n", "[2001:db8:cafe::17]:4711"),
            (
                "Forwarded: proto=http; by=203.0.113.43 ;for=\"192.0.2.60:47011\"\r\n",
                "192.0.2.60:47011",
            ),
            ("Forwarded: for=6.6.6.6, for=_hidden\r\n", "unix"),
            ("X-Forwarded-For: 192.0.2.1\r\n", "unix"),
        ] {
            assert_eq!(of(fields), expected, "{fields}");
        }
        let https =
            |fields| with_request(fields, |request| ClientSource::Forwarded.is_https(request));
        assert!(https("Forwarded: for=a;proto=https, for=b;proto=http\r\n"));
        assert!(!https("Forwarded: for=a, for=b;proto=https\r\n"));
        assert!(!with_request("Forwarded: proto=https\r\n", |r| ClientSource::Socket.is_https(r)));
    }
}
