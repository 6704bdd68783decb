//! The bytes of a request.

use crate::http2::fields;
use crate::websocket::handshake::KEY;
use crate::{Error, Url};

/// A request that is ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    path: String,
    bytes: Vec<u8>,
    /// The head, encoded for HTTP/2.
    fields: Vec<u8>,
    body: Vec<u8>,
    is_head: bool,
    keeps_alive: bool,
}

impl Request {
    /// Encodes a request for `url`. `headers` are lines of `Name: value`, one of which may replace `Host`.
    /// Without `keep_alive` each request gets a connection of its own.
    ///
    /// # Errors
    /// A method or header is invalid.
    pub fn new(
        url: &Url,
        method: &str,
        headers: &[String],
        body: Option<&[u8]>,
        keep_alive: bool,
    ) -> Result<Self, Error> {
        if method.is_empty() || !method.bytes().all(is_token) {
            return Err(Error::request(method, "not a valid method"));
        }
        let mut text = format!("{method} {} HTTP/1.1\r\n", url.path());
        if !headers.iter().any(|header| is_named(header, "host")) {
            text.push_str(&format!("Host: {}\r\n", url.authority()));
        }
        for header in headers {
            check_header(header)?;
            text.push_str(&format!("{header}\r\n"));
        }
        let length = content_length(method, body);
        if let Some(length) = length {
            text.push_str(&format!("Content-Length: {length}\r\n"));
        }
        if !keep_alive {
            text.push_str("Connection: close\r\n");
        }
        text.push_str("\r\n");
        let body = body.unwrap_or_default();
        let bytes = [text.as_bytes(), body].concat();
        let fields = http2_fields(url, method, headers, length);
        let (path, body) = (url.path().to_owned(), body.to_vec());
        let is_head = method == "HEAD";
        Ok(Self { path, bytes, fields, body, is_head, keeps_alive: keep_alive })
    }

    /// Sends the body in chunks of `chunk_bytes`, without a length, as programs do that stream it. HTTP/2 has
    /// frames instead, and no length then.
    #[must_use]
    pub fn in_chunks(self, chunk_bytes: usize) -> Self {
        let head_bytes = self.bytes.len() - self.body.len();
        let head = String::from_utf8_lossy(&self.bytes[..head_bytes]);
        let length = format!("Content-Length: {}\r\n", self.body.len());
        let mut bytes = head.replacen(&length, "Transfer-Encoding: chunked\r\n", 1).into_bytes();
        for chunk in self.body.chunks(chunk_bytes.max(1)) {
            bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            bytes.extend_from_slice(chunk);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"0\r\n\r\n");
        Self { bytes, ..self }
    }

    /// Encodes the handshake of a WebSocket, with the given headers.
    ///
    /// # Errors
    /// A header is invalid.
    pub fn websocket(url: &Url, headers: &[String]) -> Result<Self, Error> {
        let request = Self::new(url, "GET", headers, None, true)?;
        let own = format!(
            "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: {KEY}\r\n\r\n"
        );
        let head = &request.bytes[..request.bytes.len() - 2];
        Ok(Self { bytes: [head, own.as_bytes()].concat(), ..request })
    }

    /// The bytes as sent over HTTP/1.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The path with its query.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn fields(&self) -> &[u8] {
        &self.fields
    }

    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    pub(crate) fn is_head(&self) -> bool {
        self.is_head
    }

    pub(crate) fn keeps_alive(&self) -> bool {
        self.keeps_alive
    }
}

/// Encodes the head for HTTP/2, which has lower-case names and no `Host`.
fn http2_fields(url: &Url, method: &str, headers: &[String], length: Option<usize>) -> Vec<u8> {
    let split = headers.iter().filter_map(|header| header.split_once(':'));
    let split: Vec<_> =
        split.map(|(name, value)| (name.to_ascii_lowercase(), value.trim())).collect();
    let host = split.iter().find(|(name, _)| name == "host").map(|(_, value)| (*value).to_owned());
    let authority = host.unwrap_or_else(|| url.authority());
    let scheme = if url.is_tls() { "https" } else { "http" };
    let mut block = Vec::new();
    let mut write = |name: &str, value: &str| fields::write(&mut block, name, value);
    write(":method", method);
    write(":scheme", scheme);
    write(":authority", &authority);
    write(":path", url.path());
    split.iter().filter(|(name, _)| name != "host").for_each(|(name, value)| write(name, value));
    if let Some(length) = length {
        write("content-length", &length.to_string());
    }
    block
}

/// Returns the length to send. An empty body has one, and so does the lack of a body with a method that
/// usually has one (RFC 9110, section 8.6).
fn content_length(method: &str, body: Option<&[u8]>) -> Option<usize> {
    let means_to_send = matches!(method, "POST" | "PUT" | "PATCH");
    body.map(<[u8]>::len).or(means_to_send.then_some(0))
}

fn check_header(header: &str) -> Result<(), Error> {
    let refuse = |why| Err(Error::request(header, why));
    let Some((name, value)) = header.split_once(':') else {
        return refuse("a header is written as Name: value");
    };
    if name.is_empty() || !name.bytes().all(is_token) {
        return refuse("not a valid header name");
    }
    if value.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') {
        return refuse("control characters in the value");
    }
    if ["content-length", "transfer-encoding", "connection"].iter().any(|own| is_named(header, own))
    {
        return refuse("the load generator sets this header itself");
    }
    Ok(())
}

fn is_named(header: &str, name: &str) -> bool {
    header.split(':').next().is_some_and(|own| own.eq_ignore_ascii_case(name))
}

/// RFC 9110, section 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(
        method: &str,
        headers: &[&str],
        body: Option<&[u8]>,
        keep_alive: bool,
    ) -> Option<String> {
        let url = Url::parse("http://localhost:9292/a?b").unwrap();
        let headers: Vec<_> = headers.iter().map(|header| (*header).to_owned()).collect();
        let request = Request::new(&url, method, &headers, body, keep_alive).ok()?;
        Some(String::from_utf8(request.bytes).unwrap())
    }

    #[test]
    fn the_bytes_are_those_of_a_request() {
        assert_eq!(
            request("GET", &[], None, true).unwrap(),
            "GET /a?b HTTP/1.1\r\nHost: localhost:9292\r\n\r\n"
        );
        assert_eq!(
            request("POST", &["host: x", "X-A: 1"], Some(b"body"), false).unwrap(),
            "POST /a?b HTTP/1.1\r\nhost: x\r\nX-A: 1\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody"
        );
    }

    #[test]
    fn an_empty_body_has_a_length_too() {
        let length = |method, body| {
            request(method, &[], body, true).unwrap().contains("\r\nContent-Length: 0\r\n")
        };
        assert!(length("POST", Some(b"")) && length("DELETE", Some(b"")) && length("PUT", None));
        assert!(!length("GET", None) && !length("DELETE", None));
    }

    #[test]
    fn a_body_in_chunks_has_no_length() {
        let url = Url::parse("localhost").unwrap();
        let request = Request::new(&url, "POST", &[], Some(b"0123456789abcdefg"), true).unwrap();
        assert_eq!(
            String::from_utf8(request.in_chunks(16).bytes).unwrap(),
            "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n\
             10\r\n0123456789abcdef\r\n1\r\ng\r\n0\r\n\r\n"
        );
    }

    #[test]
    fn nothing_can_be_smuggled_in() {
        assert_eq!(request("GE T", &[], None, true), None);
        assert_eq!(request("", &[], None, true), None);
        for header in ["no colon", ": x", "A b: c", "A: b\r\nC: d", "Content-Length: 3"] {
            assert_eq!(request("GET", &[header], None, true), None, "{header:?}");
        }
    }
}
