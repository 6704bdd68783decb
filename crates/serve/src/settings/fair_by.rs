//! The unit that takes turns as a client: a connection, an address, or the value of a header field.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use thruway_http1::Request;

use crate::listen::listener::Peer;

/// The unit that takes turns as a client.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum FairBy {
    /// Each connection is a client.
    #[default]
    Connection,
    /// All connections of one address are one client: for IPv6, those of one network of 64 bits.
    Address,
    /// All requests with one value of the field are one client; the last element of a list counts. Without the field,
    /// the connection is the client.
    Header(String),
}

impl FromStr for FairBy {
    type Err = String;

    /// Parses `connection`, `address` or `header:NAME`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "connection" => Ok(Self::Connection),
            None if text == "address" => Ok(Self::Address),
            Some(("header", name)) if is_token(name) => Ok(Self::Header(name.to_owned())),
            Some(("header", name)) => Err(format!("{name:?} is not a header name")),
            _ => Err(format!("{text:?} is neither connection, address nor header:NAME")),
        }
    }
}

impl fmt::Display for FairBy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection => formatter.write_str("connection"),
            Self::Address => formatter.write_str("address"),
            Self::Header(name) => write!(formatter, "header:{name}"),
        }
    }
}

/// Whether a name is a token (RFC 9110, 5.6.2).
fn is_token(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_allowed)
}

impl FairBy {
    /// The name of the client that sent `request`; none if the connection is the client.
    pub(crate) fn name_of(&self, request: &Request<'_>, peer: Peer) -> Option<Vec<u8>> {
        match (self, peer) {
            (Self::Connection, _) | (Self::Address, Peer::Unix) => None,
            (Self::Address, Peer::Tcp(peer)) => Some(network_of(peer.ip())),
            (Self::Header(name), _) => {
                let values = request.fields().filter_map(|(field, value)| {
                    field.eq_ignore_ascii_case(name.as_bytes()).then_some(value)
                });
                let last = values.last()?.rsplit(|byte| *byte == b',').next()?;
                Some(last.trim_ascii()).filter(|name| !name.is_empty()).map(<[u8]>::to_vec)
            }
        }
    }
}

/// An IPv4 address, or the first half of an IPv6 address, whose other half the client can choose.
pub(crate) fn network_of(address: IpAddr) -> Vec<u8> {
    match address.to_canonical() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets()[..8].to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thruway_http1::{Head, Limits};

    fn name(fair_by: &FairBy, peer: &str, fields: &str) -> Option<String> {
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let mut head = Head::new();
        assert_eq!(head.parse(text.as_bytes(), 0, &Limits::default()), Ok(true));
        let peer = peer.parse().map_or(Peer::Unix, Peer::Tcp);
        let name = fair_by.name_of(&head.request(text.as_bytes()), peer)?;
        Some(name.iter().map(|byte| char::from(*byte)).collect())
    }

    #[test]
    fn the_words_of_the_option() {
        assert_eq!("connection".parse(), Ok(FairBy::Connection));
        assert_eq!("address".parse(), Ok(FairBy::Address));
        assert_eq!("header:X-Real-IP".parse(), Ok(FairBy::Header("X-Real-IP".into())));
        for (text, said) in [
            ("ip", "\"ip\" is neither connection, address nor header:NAME"),
            ("header", "\"header\" is neither connection, address nor header:NAME"),
            ("header:", "\"\" is not a header name"),
            ("header:a b", "\"a b\" is not a header name"),
        ] {
            assert_eq!(text.parse::<FairBy>(), Err(said.into()));
        }
    }

    #[test]
    fn a_proxy_adds_its_client_at_the_end_of_a_list() {
        let header = FairBy::Header("X-Forwarded-For".into());
        let of = |fields| name(&header, "127.0.0.1:9", fields);
        assert_eq!(of("x-forwarded-for: 10.0.0.1, 192.0.2.7\r\n").as_deref(), Some("192.0.2.7"));
        let lines = "X-Forwarded-For: 10.0.0.1\r\nX-Forwarded-For: 10.0.0.2\r\n";
        assert_eq!(of(lines).as_deref(), Some("10.0.0.2"));
        assert_eq!(of("X-Forwarded-For: ,\r\n"), None);
        assert_eq!(of(""), None);
    }

    #[test]
    fn an_address_of_ipv6_is_its_network() {
        let of = |peer| name(&FairBy::Address, peer, "");
        assert_eq!(of("192.0.2.7:80"), of("192.0.2.7:81"));
        assert_eq!(of("192.0.2.7:80"), of("[::ffff:192.0.2.7]:80"));
        assert_ne!(of("192.0.2.7:80"), of("192.0.2.8:80"));
        assert_eq!(of("[2001:db8::1]:80"), of("[2001:db8::ffff:1]:80"));
        assert_ne!(of("[2001:db8::1]:80"), of("[2001:db8:0:1::1]:80"));
        assert_eq!(of("unix"), None);
        assert_eq!(name(&FairBy::Connection, "192.0.2.7:80", ""), None);
    }
}
