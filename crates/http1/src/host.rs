//! The host that a request names, in `Host` or in its target.

use crate::token::is_host_name;

/// Whether `host` is a name or an address with an optional port, according to RFC 3986, without user information. A
/// name must not have empty labels.
pub(crate) fn is_valid(host: &[u8]) -> bool {
    let (name, port) = split_port(host);
    let named = match name {
        [b'[', address @ .., b']'] => is_address(address),
        name => is_name(name),
    };
    named && port.is_none_or(is_port)
}

/// Splits off the port. Colons inside brackets belong to the address.
fn split_port(host: &[u8]) -> (&[u8], Option<&[u8]>) {
    let from = host.iter().position(|byte| *byte == b']').unwrap_or(0);
    match host[from..].iter().position(|byte| *byte == b':') {
        Some(colon) => (&host[..from + colon], Some(&host[from + colon + 1..])),
        None => (host, None),
    }
}

fn is_name(name: &[u8]) -> bool {
    let labelled = !name.is_empty() && name[0] != b'.' && !name.windows(2).any(|two| two == b"..");
    labelled && name.iter().all(|byte| is_host_name(*byte))
}

/// Checks the characters of an IPv6 address with an optional zone.
fn is_address(address: &[u8]) -> bool {
    let inside = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b':' | b'.' | b'%');
    !address.is_empty() && address.iter().all(inside)
}

/// RFC 3986 allows an empty port.
fn is_port(port: &[u8]) -> bool {
    port.len() <= 5 && port.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_with_a_port_are_hosts() {
        let hosts =
            ["a", "a.example", "a.example.", "127.0.0.1:80", "[::1]", "[::1]:8080", "a:", "_b-c"];
        for host in hosts {
            assert!(is_valid(host.as_bytes()), "{host}");
        }
    }

    #[test]
    fn an_ambiguous_host_is_refused() {
        let others = [
            "", ":80", "a..b", ".a", "a b", "a/b", "a@b", "a\\b", "[::1", "::1]", "[]", "a:80:90",
            "a:8x", "a:123456", "a\0", "a?b", "a#b", "ä", "[::1]x", "[::1/]",
        ];
        for host in others {
            assert!(!is_valid(host.as_bytes()), "{host:?}");
        }
    }
}
