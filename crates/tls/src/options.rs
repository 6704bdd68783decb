//! The TLS parameters in a listener's address.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use crate::{AcmeFolder, CertificateReport};

/// The maximum number of certificates of a listener, since each handshake may check all of them.
pub(crate) const CERTIFICATES_MAX: usize = 256;

/// Whether clients authenticate with certificates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Verify {
    /// Clients are not asked for a certificate.
    #[default]
    None,
    /// Clients may present a certificate, which must be valid.
    Peer,
    /// Each client must present a valid certificate.
    ForcePeer,
}

/// Certificates that an ACME agent obtains and renews. Each of them may be missing at first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Automatic {
    /// The folder in which the agent keeps them.
    pub folder: AcmeFolder,
    /// The names, in lower case. The certificate of the first one is for clients that request no name.
    pub names: Vec<String>,
}

impl Automatic {
    /// Returns the reports of the agent on all names.
    #[must_use]
    pub fn reports(&self) -> Vec<CertificateReport> {
        self.names.iter().map(|name| self.folder.report(name)).collect()
    }
}

/// The certificates of a listener, and the requirements on clients. The parameters have the names that Puma uses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// The file of each certificate and the file of its key. The first pair is for clients that request no name.
    pub certificates: Vec<(PathBuf, PathBuf)>,
    /// The certificates that an ACME agent keeps, if there is one.
    pub automatic: Option<Automatic>,
    /// The certificates of the authorities that sign clients' certificates.
    pub ca: Option<PathBuf>,
    /// Whether clients authenticate with certificates.
    pub verify: Verify,
    /// Whether TLS 1.2 is refused.
    pub is_only_tls13: bool,
}

impl Options {
    /// Applies a parameter of an address. Returns `false` if the parameter does not concern TLS.
    ///
    /// # Errors
    /// The value is malformed, or requests a feature that is not supported.
    pub fn take(&mut self, name: &str, value: &str) -> Result<bool, String> {
        if matches!(name, "cert" | "key" | "ca") && value.contains("-----BEGIN") {
            return Err(format!("{name}= is a file's name, not what is in the file"));
        }
        match name {
            "cert" => self.certificates.push((path(value), PathBuf::new())),
            "key" => {
                let last = self.certificates.last_mut();
                let last = last.filter(|(_, key)| key.as_os_str().is_empty());
                last.ok_or("key= follows its cert=")?.1 = path(value);
            }
            "acme" => {
                let folder = AcmeFolder::new(path(value));
                self.automatic = Some(Automatic { folder, names: Vec::new() });
            }
            "acme_name" => {
                let automatic = self.automatic.as_mut().ok_or("acme_name= follows acme=")?;
                automatic.names.push(value.to_owned());
            }
            "ca" => self.ca = Some(path(value)),
            "verify_mode" => self.verify = verify(value)?,
            "no_tlsv1" | "no_tlsv1_1" if matches!(value, "true" | "") => {}
            "no_tlsv1" | "no_tlsv1_1" => return Err("TLS 1.0 and 1.1 are never spoken".into()),
            "no_tlsv1_2" => self.is_only_tls13 = value != "false",
            "ssl_cipher_filter" | "ssl_ciphersuites" => {
                return Err(format!("{name}= cannot be chosen: only safe suites are spoken"));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Completes the options after the last parameter. A certificate without a key file has its key in its own file.
    ///
    /// # Errors
    /// No certificate is given, or clients are verified without authorities.
    pub fn finish(mut self) -> Result<Self, String> {
        if self.certificates.is_empty() && self.automatic.is_none() {
            return Err("names no certificate: add ?cert=FILE&key=FILE".into());
        }
        if self.certificates.len() > CERTIFICATES_MAX {
            return Err(format!("names more than {CERTIFICATES_MAX} certificates"));
        }
        if self.verify != Verify::None && self.ca.is_none() {
            return Err("verifies clients, and names no ca=FILE".into());
        }
        for (certificate, key) in &mut self.certificates {
            if key.as_os_str().is_empty() {
                key.clone_from(certificate);
            }
        }
        Ok(self)
    }
}

fn verify(value: &str) -> Result<Verify, String> {
    match value {
        "none" => Ok(Verify::None),
        "peer" => Ok(Verify::Peer),
        "force_peer" => Ok(Verify::ForcePeer),
        _ => Err(format!("verify_mode={value} is neither none, peer nor force_peer")),
    }
}

fn path(value: &str) -> PathBuf {
    PathBuf::from(OsString::from_vec(percent_decoded(value)))
}

/// Decodes a value, in which `%20` stands for a space. Malformed escapes stay as they are.
#[must_use]
pub fn percent_decoded(value: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = code.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (first, code) {
            (b'%', Some(code)) => {
                bytes.push(code);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(parameters: &[(&str, &str)]) -> Result<Options, String> {
        let mut options = Options::default();
        for (name, value) in parameters {
            assert!(options.take(name, value)?, "{name} is one of TLS");
        }
        options.finish()
    }

    #[test]
    fn pairs_are_read_in_their_order_and_a_key_may_be_in_its_certificates_file() {
        let options =
            read(&[("cert", "a%20b.pem"), ("key", "a.key"), ("cert", "both.pem")]).unwrap();
        let pair = |certificate: &str, key: &str| (certificate.into(), key.into());
        assert_eq!(options.certificates, [pair("a b.pem", "a.key"), pair("both.pem", "both.pem")]);
        assert!(!Options::default().take("backlog", "5").unwrap());
    }

    #[test]
    fn pumas_words_for_the_verification_of_clients_are_understood() {
        let base = [("cert", "a"), ("ca", "b")];
        for (word, verify) in
            [("none", Verify::None), ("peer", Verify::Peer), ("force_peer", Verify::ForcePeer)]
        {
            let options = read(&[base[0], base[1], ("verify_mode", word)]).unwrap();
            assert_eq!(options.verify, verify);
        }
        assert!(read(&[("cert", "a"), ("no_tlsv1", "true"), ("no_tlsv1_1", "true")]).is_ok());
        assert!(read(&[("cert", "a"), ("no_tlsv1_2", "true")]).unwrap().is_only_tls13);
    }

    #[test]
    fn missing_and_unsupported_parameters_are_refused() {
        for wrong in [
            &[][..],
            &[("key", "a")],
            &[("cert", "a"), ("key", "b"), ("key", "c")],
            &[("cert", "a"), ("key", "-----BEGIN%20PRIVATE%20KEY-----")],
            &[("cert", "a"), ("verify_mode", "peer")],
            &[("cert", "a"), ("verify_mode", "maybe")],
            &[("cert", "a"), ("no_tlsv1", "false")],
            &[("cert", "a"), ("ssl_cipher_filter", "RC4")],
        ] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }
}
