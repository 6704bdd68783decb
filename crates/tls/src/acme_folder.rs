//! The folder through which an ACME agent and the workers of a server share certificates and answers to challenges.

use std::path::{Path, PathBuf};

/// The maximum length of a challenge's token in bytes. Those of Let's Encrypt have 43.
const TOKEN_BYTES_MAX: usize = 128;

/// The folder of one authority's certificates. The ACME agent writes the files, and replaces each of them as a whole;
/// the server's workers read them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcmeFolder(PathBuf);

impl AcmeFolder {
    /// Creates a value for the folder at `path`, without touching the disk.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Returns the folder's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the folder of the certificates.
    #[must_use]
    pub fn certificates(&self) -> PathBuf {
        self.0.join("certificates")
    }

    /// Returns the file with the key and the certificates of a name. The name must be a valid one, in lower case.
    #[must_use]
    pub fn certificate(&self, name: &str) -> PathBuf {
        self.certificates().join(format!("{name}.pem"))
    }

    /// Returns the folder of the answers to the challenge HTTP-01.
    #[must_use]
    pub fn http_answers(&self) -> PathBuf {
        self.0.join("http-01")
    }

    /// Returns the file with the answer for a token; `None` if the bytes are not a valid token.
    #[must_use]
    pub fn http_answer(&self, token: &[u8]) -> Option<PathBuf> {
        let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let is_token = (1..=TOKEN_BYTES_MAX).contains(&token.len()) && token.iter().all(is_allowed);
        let token = std::str::from_utf8(token).ok().filter(|_| is_token)?;
        Some(self.http_answers().join(token))
    }

    /// Returns the folder of the reports on certificates.
    #[must_use]
    pub fn reports(&self) -> PathBuf {
        self.0.join("reports")
    }

    /// Returns the file with the report on a name.
    pub(crate) fn report_path(&self, name: &str) -> PathBuf {
        self.reports().join(name)
    }

    /// Returns the folder of the answers to the challenge TLS-ALPN-01.
    #[must_use]
    pub fn tls_answers(&self) -> PathBuf {
        self.0.join("tls-alpn-01")
    }

    /// Returns the file with the key and the certificate that answer the challenge TLS-ALPN-01 for a name.
    #[must_use]
    pub fn tls_answer(&self, name: &str) -> PathBuf {
        self.tls_answers().join(format!("{name}.pem"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_token_names_an_answer() {
        let folder = AcmeFolder::new("/storage".into());
        assert_eq!(folder.http_answer(b"aZ0-_"), Some("/storage/http-01/aZ0-_".into()));
        let long = [b'a'; TOKEN_BYTES_MAX + 1];
        for wrong in [&b""[..], b".", b"..", b"a/b", b"../key", b"a.pem", b"a\0", b"\xff", &long] {
            assert_eq!(folder.http_answer(wrong), None, "{wrong:?}");
        }
    }
}
