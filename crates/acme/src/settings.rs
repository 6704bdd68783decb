//! The settings of an agent.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::domain_name::DomainName;

/// The directory of Let's Encrypt.
pub const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// The settings of an agent.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The names, each of which gets a certificate.
    pub names: Vec<DomainName>,
    /// The URL of the authority's directory.
    pub directory: String,
    /// The certificates to trust for the directory's own TLS, in place of those of the system.
    pub ca: Option<PathBuf>,
    /// The addresses for messages of the authority, such as `mailto:ops@shop.example`.
    pub contacts: Vec<String>,
    /// The account at the authority that a new ACME account is bound to.
    pub external_account: Option<ExternalAccount>,
    /// The challenges to answer, the preferred one first. After a failure, the next one is tried.
    pub challenges: Vec<Challenge>,
    /// The first pause after a failure, in seconds. It doubles with each further failure.
    pub retry_s: u64,
}

/// A binding to an account outside of ACME (RFC 8555, 7.3.4).
#[derive(Clone)]
pub struct ExternalAccount {
    /// The authority's name for its key.
    pub key_id: String,
    /// The key, decoded.
    pub key: Vec<u8>,
}

impl ExternalAccount {
    /// Creates an account from the key's name and the key in Base64, in either alphabet, with padding or without.
    ///
    /// # Errors
    /// The key is not in Base64, or empty. The error does not repeat the key.
    pub fn new(key_id: String, key: &str) -> Result<Self, String> {
        let wrong = || "the key of the external account is not in Base64".to_owned();
        let key = decode_base64(key.trim()).filter(|key| !key.is_empty()).ok_or_else(wrong)?;
        Ok(Self { key_id, key })
    }
}

impl fmt::Debug for ExternalAccount {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ExternalAccount").field("key_id", &self.key_id).finish()
    }
}

fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut held, mut bits) = (0_u32, 0);
    for byte in text.trim_end_matches('=').bytes() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        held = held << 6 | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits & 0xff) as u8);
        }
    }
    (bits < 6).then_some(bytes)
}

/// A way to prove the possession of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Challenge {
    /// A file at port 80.
    Http01,
    /// A certificate at port 443 (RFC 8737).
    TlsAlpn01,
}

impl FromStr for Challenge {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "http-01" => Ok(Self::Http01),
            "tls-alpn-01" => Ok(Self::TlsAlpn01),
            "dns-01" => Err("dns-01 is not supported: use http-01 or tls-alpn-01".into()),
            _ => Err(format!("{text:?} is neither http-01 nor tls-alpn-01")),
        }
    }
}

impl fmt::Display for Challenge {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Http01 => "http-01",
            Self::TlsAlpn01 => "tls-alpn-01",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_in_both_alphabets_with_padding_and_without() {
        for (text, key) in
            [("_-8", &[0xff, 0xef][..]), ("/+8=", &[0xff, 0xef]), ("AAEC", &[0, 1, 2])]
        {
            assert_eq!(ExternalAccount::new("kid".into(), text).unwrap().key, key);
        }
        for wrong in ["", "=", "A", "a b", "ключ"] {
            let error = ExternalAccount::new("kid".into(), wrong).unwrap_err();
            assert!(error.contains("Base64") && (wrong.len() < 3 || !error.contains(wrong)));
        }
    }

    #[test]
    fn the_key_of_an_external_account_is_never_printed() {
        let account = ExternalAccount::new("kid".into(), "c2VjcmV0").unwrap();
        assert_eq!(format!("{account:?}"), "ExternalAccount { key_id: \"kid\" }");
    }
}
