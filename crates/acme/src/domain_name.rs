//! Names for which certificates are issued.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// The maximum number of names of a server, each of which has its own certificate.
pub const NAMES_MAX: usize = 100;

/// The maximum length of a name, and of a label in it, in bytes (RFC 1035, 2.3.4).
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// A host name in lower case, such as `shop.example`. The name is safe as a part of a file name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainName(String);

impl DomainName {
    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DomainName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl FromStr for DomainName {
    type Err = String;

    /// Parses a name. Capital letters become small ones, and a final dot is dropped.
    fn from_str(text: &str) -> Result<Self, String> {
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        let wrong = |why: &str| Err(format!("{text:?} {why}"));
        if name.is_empty() {
            return wrong("is not a domain name: it is empty");
        }
        if address.unwrap_or(&name).parse::<IpAddr>().is_ok() {
            return wrong("is an address: a certificate is for a name, such as shop.example");
        }
        if name.contains('*') {
            return wrong(
                "is a wildcard, which needs the challenge DNS-01: give each name by itself",
            );
        }
        if name.contains([':', '/', '@']) {
            return wrong("is not a domain name: leave out the scheme, the port and the path");
        }
        if !name.is_ascii() {
            return wrong("is not ASCII: give the form that begins with xn--, as idn2 prints it");
        }
        if name.len() > NAME_BYTES_MAX {
            return wrong("is not a domain name: it is longer than 253 bytes");
        }
        if !name.split('.').all(is_label) {
            return wrong(
                "is not a domain name: its parts are 1 to 63 letters, digits and hyphens",
            );
        }
        if name.rsplit('.').next().is_some_and(|last| last.bytes().all(|b| b.is_ascii_digit())) {
            return wrong("is not a domain name: its last part is a number");
        }
        Ok(Self(name))
    }
}

fn is_label(label: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (1..=LABEL_BYTES_MAX).contains(&label.len())
        && label.bytes().all(is_allowed)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_without_regard_to_case_and_to_its_last_dot() {
        for (text, name) in [
            ("shop.example", "shop.example"),
            ("Shop.EXAMPLE.", "shop.example"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
            ("a-b.c", "a-b.c"),
            ("intranet", "intranet"),
            ("4.example", "4.example"),
        ] {
            assert_eq!(text.parse::<DomainName>().unwrap().as_str(), name);
        }
    }

    #[test]
    fn what_no_certificate_can_be_for_is_refused_with_the_reason() {
        let long_label = format!("{}.example", "a".repeat(64));
        let long_name = format!("{}example", "a123456789.".repeat(23));
        for (text, reason) in [
            ("", "empty"),
            (".", "empty"),
            ("192.0.2.1", "is an address"),
            ("2001:db8::1", "is an address"),
            ("[::1]", "is an address"),
            ("*.example", "DNS-01"),
            ("https://shop.example", "leave out the scheme"),
            ("shop.example:443", "the port"),
            ("shop.example/", "the path"),
            ("bücher.example", "xn--"),
            ("shop..example", "its parts"),
            (".shop.example", "its parts"),
            ("-a.example", "its parts"),
            ("a-.example", "its parts"),
            ("a_b.example", "its parts"),
            ("a b.example", "its parts"),
            ("../a", "the path"),
            (&long_label, "its parts"),
            (&long_name, "253"),
            ("a.0x7f.1", "a number"),
        ] {
            let error = text.parse::<DomainName>().unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
