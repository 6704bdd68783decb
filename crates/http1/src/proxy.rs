//! The head of the PROXY protocol, versions 1 and 2, by which a proxy identifies its client.
//!
//! The head precedes the first request of a connection. Both versions follow HAProxy's specification.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::parse_error::ParseError;

/// The maximum length of a line of version 1, including its end.
const LINE_BYTES_MAX: usize = 107;

/// The signature of version 2.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// The length of the fixed part of version 2: the signature, the command, the family, and the length of the rest.
const FIXED_BYTES: usize = 16;

/// The maximum length of the rest of version 2: addresses, and extensions such as a certificate's name.
const REST_BYTES_MAX: usize = 4096;

/// A version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyVersion {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

/// A complete head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyHead {
    /// The client; `None` if the proxy speaks for itself, as in a health check, or does not know the client.
    pub client: Option<SocketAddr>,
    /// The length of the head in bytes.
    pub length_bytes: usize,
}

/// Parses the head at the start of `bytes`. Returns `None` if it is incomplete.
///
/// # Errors
/// The bytes are not a head of that version.
pub fn parse_proxy_head(
    bytes: &[u8],
    version: ProxyVersion,
) -> Result<Option<ProxyHead>, ParseError> {
    match version {
        ProxyVersion::V1 => parse_line(bytes),
        ProxyVersion::V2 => parse_binary(bytes),
    }
}

fn parse_line(bytes: &[u8]) -> Result<Option<ProxyHead>, ParseError> {
    const START: &[u8] = b"PROXY ";
    let common = bytes.len().min(START.len());
    if bytes[..common] != START[..common] {
        return Err(ParseError::ProxyHead);
    }
    let within = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    let Some(end) = within.windows(2).position(|pair| pair == b"\r\n") else {
        let is_too_long = bytes.len() >= LINE_BYTES_MAX;
        return if is_too_long { Err(ParseError::ProxyHead) } else { Ok(None) };
    };
    let line = std::str::from_utf8(&bytes[START.len().min(end)..end]);
    let line = line.map_err(|_| ParseError::ProxyHead)?;
    let client = client_of_line(line).ok_or(ParseError::ProxyHead)?;
    Ok(Some(ProxyHead { client, length_bytes: end + 2 }))
}

/// Parses the rest of a line after `PROXY `. Returns `Some(None)` if the client is unknown, and `None` if the line is
/// malformed.
fn client_of_line(line: &str) -> Option<Option<SocketAddr>> {
    if line == "UNKNOWN" || line.starts_with("UNKNOWN ") {
        return Some(None);
    }
    let mut words = line.split(' ');
    let mut next = || words.next();
    let (family, source, target) = (next()?, next()?, next()?);
    let (source_port, target_port) = (next()?, next()?);
    let is_of_family = |address: &IpAddr| match family {
        "TCP4" => address.is_ipv4(),
        "TCP6" => address.is_ipv6(),
        _ => false,
    };
    let address = |text: &str| text.parse().ok().filter(is_of_family);
    let (source, _) = (address(source)?, address(target)?);
    let (source_port, _) = (port(source_port)?, port(target_port)?);
    words.next().is_none().then(|| Some(SocketAddr::new(source, source_port)))
}

/// Parses a port in decimal digits, without leading zeros.
fn port(text: &str) -> Option<u16> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let is_plain = is_number && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| is_plain)
}

fn parse_binary(bytes: &[u8]) -> Result<Option<ProxyHead>, ParseError> {
    let common = bytes.len().min(SIGNATURE.len());
    if bytes[..common] != SIGNATURE[..common] {
        return Err(ParseError::ProxyHead);
    }
    let Some(fixed) = bytes.get(..FIXED_BYTES) else { return Ok(None) };
    let (command, family) = (fixed[12], fixed[13]);
    let rest_bytes = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    if rest_bytes > REST_BYTES_MAX {
        return Err(ParseError::ProxyHead);
    }
    let length_bytes = FIXED_BYTES + rest_bytes;
    let Some(rest) = bytes.get(FIXED_BYTES..length_bytes) else { return Ok(None) };
    let client = match command {
        // The proxy speaks for itself.
        0x20 => None,
        0x21 => client_of_block(family, rest).ok_or(ParseError::ProxyHead)?,
        _ => return Err(ParseError::ProxyHead),
    };
    Ok(Some(ProxyHead { client, length_bytes }))
}

/// Parses the client's address in a block of addresses. Returns `Some(None)` for other families than those of the
/// Internet, and `None` if the block is too short.
fn client_of_block(family: u8, block: &[u8]) -> Option<Option<SocketAddr>> {
    let port_at = |at: usize| u16::from_be_bytes([block[at], block[at + 1]]);
    match family {
        0x11 => {
            let octets: [u8; 4] = block.get(..12)?[..4].try_into().ok()?;
            Some(Some(SocketAddr::new(Ipv4Addr::from(octets).into(), port_at(8))))
        }
        0x21 => {
            let octets: [u8; 16] = block.get(..36)?[..16].try_into().ok()?;
            Some(Some(SocketAddr::new(Ipv6Addr::from(octets).into(), port_at(32))))
        }
        // For unspecified families, datagrams and Unix sockets, the connection's own address stays valid.
        0x00 | 0x12 | 0x22 | 0x31 | 0x32 => Some(None),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the client and the length, as text.
    fn line(text: &str) -> String {
        match parse_proxy_head(text.as_bytes(), ProxyVersion::V1) {
            Ok(Some(head)) => {
                let client = head.client.map_or("unknown".into(), |client| client.to_string());
                format!("{client} {}", head.length_bytes)
            }
            Ok(None) => "more".into(),
            Err(_) => "wrong".into(),
        }
    }

    #[test]
    fn a_line_names_the_client() {
        for (text, read) in [
            ("PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\nGET /", "192.0.2.1:56324 45"),
            ("PROXY TCP6 2001:db8::1 ::1 1 2\r\n", "[2001:db8::1]:1 32"),
            ("PROXY UNKNOWN\r\n", "unknown 15"),
            ("PROXY UNKNOWN ffff::1 ffff::1 1 2\r\n", "unknown 35"),
            ("PRO", "more"),
            ("", "more"),
            ("PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r", "more"),
            ("GET / HTTP/1.1\r\n", "wrong"),
            ("PROXY\r\n", "wrong"),
            ("PROXY TCP4 192.0.2.1 198.51.100.1 56324\r\n", "wrong"),
            ("PROXY TCP4 192.0.2.1 198.51.100.1 56324 443 1\r\n", "wrong"),
            ("PROXY TCP4 ::1 ::1 1 2\r\n", "wrong"),
            ("PROXY TCP6 192.0.2.1 198.51.100.1 1 2\r\n", "wrong"),
            ("PROXY TCP4 192.0.2.1 198.51.100.1 65536 1\r\n", "wrong"),
            ("PROXY TCP4 192.0.2.1 198.51.100.1 +1 1\r\n", "wrong"),
            ("PROXY TCP4 192.0.2.1 198.51.100.1 01 1\r\n", "wrong"),
            ("PROXY TCP4 192.0.2.1  198.51.100.1 1 1\r\n", "wrong"),
            ("PROXY TCP5 192.0.2.1 198.51.100.1 1 1\r\n", "wrong"),
            ("PROXY TCP4 192.0.2.1 198.51.100.1 1 1\n\r\n", "wrong"),
        ] {
            assert_eq!(line(text), read, "{text:?}");
        }
        assert_eq!(line(&format!("PROXY UNKNOWN {}", "x".repeat(93))), "wrong", "it has no end");
    }

    fn block(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[command, family], &length, rest].concat()
    }

    fn read(bytes: &[u8]) -> Result<Option<ProxyHead>, ParseError> {
        parse_proxy_head(bytes, ProxyVersion::V2)
    }

    #[test]
    fn a_block_names_the_client_and_is_whole_at_its_length() {
        let addresses = [192, 0, 2, 1, 198, 51, 100, 1, 0x1f, 0x90, 1, 187];
        let with_extension = [&addresses[..], &[4, 0, 1, 0]].concat();
        let whole = block(0x21, 0x11, &with_extension);
        let client = "192.0.2.1:8080".parse().ok();
        assert_eq!(read(&whole), Ok(Some(ProxyHead { client, length_bytes: 32 })));
        for end in 0..whole.len() {
            assert_eq!(read(&whole[..end]), Ok(None), "{end} bytes");
        }
        let mut six = [0; 36];
        (six[15], six[33]) = (1, 80);
        let client = "[::1]:80".parse().ok();
        assert_eq!(read(&block(0x21, 0x21, &six)).unwrap().unwrap().client, client);
    }

    #[test]
    fn a_block_without_a_client_is_one_all_the_same() {
        for (command, family, rest) in
            [(0x20, 0, &[][..]), (0x20, 0x11, &[0; 12]), (0x21, 0x31, &[0; 216]), (0x21, 0, &[])]
        {
            let bytes = block(command, family, rest);
            let length_bytes = bytes.len();
            assert_eq!(read(&bytes), Ok(Some(ProxyHead { client: None, length_bytes })));
        }
    }

    #[test]
    fn another_block_is_refused() {
        let long = vec![0; REST_BYTES_MAX + 1];
        for wrong in [
            b"GET / HTTP/1.1\r\n".to_vec(),
            b"PROXY UNKNOWN\r\n".to_vec(),
            block(0x11, 0x11, &[0; 12]),
            block(0x22, 0x11, &[0; 12]),
            block(0x21, 0x11, &[0; 11]),
            block(0x21, 0x21, &[0; 35]),
            block(0x21, 0x41, &[0; 36]),
            block(0x21, 0x11, &long),
        ] {
            assert_eq!(read(&wrong), Err(ParseError::ProxyHead), "{wrong:?}");
        }
    }
}
