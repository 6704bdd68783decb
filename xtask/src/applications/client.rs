//! A client that sends one request on each connection and reads the response byte for byte.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

/// The time limit of a response.
const ANSWER_MAX: Duration = Duration::from_secs(120);

/// A header field: name and value.
pub(super) type Field = (String, String);

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) method: &'static str,
    pub(super) target: String,
    pub(super) fields: Vec<Field>,
    pub(super) body: &'static str,
}

/// A response. Names of fields are in lower case, and the body is decoded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) fields: Vec<Field>,
    pub(super) body: Vec<u8>,
}

impl Request {
    pub(super) fn get(target: &str) -> Self {
        Self { method: "GET", target: target.to_owned(), fields: Vec::new(), body: "" }
    }

    pub(super) fn with(mut self, name: &str, value: &str) -> Self {
        self.fields.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Returns the request's name in a report.
    pub(super) fn title(&self) -> String {
        let fields: String =
            self.fields.iter().map(|(name, value)| format!(" ({name}: {value})")).collect();
        format!("{} {}{fields}", self.method, self.target)
    }

    /// Sends the request with further fields, and reads the response to the end.
    pub(super) fn ask(&self, port: u16, further: &[Field]) -> Result<Response, String> {
        let response = self.exchange(port, further);
        let response = response.map_err(|error| format!("{}: {error}", self.title()))?;
        Response::read(&response).ok_or_else(|| {
            let start = String::from_utf8_lossy(&response[..response.len().min(80)]).into_owned();
            format!("{}: not a response: {start:?}", self.title())
        })
    }

    fn exchange(&self, port: u16, further: &[Field]) -> io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        // The host has no port: links that the application writes are the same for each server.
        let mut head = format!(
            "{} {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n",
            self.method, self.target
        );
        for (name, value) in self.fields.iter().chain(further) {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !self.body.is_empty() {
            head.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
        }
        stream.write_all(format!("{head}\r\n{}", self.body).as_bytes())?;
        let mut response = Vec::new();
        stream.read_to_end(&mut response)?;
        Ok(response)
    }
}

impl Response {
    /// Parses the bytes of a connection; `None` if they are no complete response.
    fn read(bytes: &[u8]) -> Option<Self> {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let mut lines = head.split("\r\n");
        let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.split(' ').next()?.parse().ok()?;
        let field = |line: &str| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_ascii_lowercase(), value.trim().to_owned()))
        };
        let fields = lines.map(field).collect::<Option<Vec<_>>>()?;
        let rest = &bytes[end + 4..];
        let is_chunked =
            fields.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
        let body = if is_chunked { unchunked(rest)? } else { rest.to_vec() };
        Some(Self { status, fields, body })
    }

    /// The first value of a field.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn is_html(&self) -> bool {
        self.field("content-type").is_some_and(|kind| kind.starts_with("text/html"))
    }
}

/// Decodes a body in chunks; `None` if the last chunk is missing.
fn unchunked(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|window| window == b"\r\n")?;
        let size = std::str::from_utf8(&rest[..end]).ok()?.split(';').next()?;
        let size = usize::from_str_radix(size, 16).ok()?;
        rest = rest.get(end + 2..)?;
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(..size)?);
        rest = rest.get(size + 2..)?;
    }
}

/// Parses a header field, `Name: value`.
pub(super) fn field(text: &str) -> Result<Field, String> {
    match text.split_once(':') {
        Some((name, value))
            if !name.is_empty() && !text.contains(['\r', '\n']) && !name.contains(' ') =>
        {
            Ok((name.to_owned(), value.trim().to_owned()))
        }
        _ => Err(format!("{text:?} is not a header field\n\nhint: write it as `Name: value`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_the_same_in_chunks_and_at_once() {
        let head = "HTTP/1.1 200 OK\r\nX-A: b\r\n";
        let chunked =
            format!("{head}Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n1\r\nd\r\n0\r\n\r\n");
        let response = Response::read(chunked.as_bytes()).unwrap();
        assert_eq!((response.status, response.body.as_slice()), (200, &b"abcd"[..]));
        assert_eq!(response.field("x-a"), Some("b"));
        let plain =
            Response::read(format!("{head}Content-Length: 4\r\n\r\nabcd").as_bytes()).unwrap();
        assert_eq!(plain.body, response.body);
        // A response that ends in the middle is none.
        assert_eq!(Response::read(&chunked.as_bytes()[..chunked.len() - 7]), None);
        assert_eq!(Response::read(b"HTTP/1.1 200 OK\r\n"), None);
    }

    #[test]
    fn a_field_is_a_name_and_a_value() {
        assert_eq!(field("Cookie: a=b:c"), Ok(("Cookie".into(), "a=b:c".into())));
        for wrong in ["Cookie", ": b", "a b: c", "a: b\r\nc: d"] {
            assert!(field(wrong).unwrap_err().contains("hint: "), "{wrong}");
        }
    }
}
