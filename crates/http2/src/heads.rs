//! Translates heads between HTTP/1 and HTTP/2.

use h2::ext::Protocol;
use http::header::{CONTENT_LENGTH, COOKIE, HOST, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, Response, StatusCode};

/// Fields that concern an HTTP/1 connection, which a response of HTTP/2 must not contain (RFC 9113, section 8.2.2).
const CONNECTION_FIELDS: [&[u8]; 6] = [
    b"connection",
    b"keep-alive",
    b"proxy-connection",
    b"transfer-encoding",
    b"upgrade",
    // The field answers to the client's key, and WebSockets over HTTP/2 use no key (RFC 8441, section 5).
    b"sec-websocket-accept",
];

/// The additional fields with which a client of HTTP/1.1 opens a WebSocket. Any 16 bytes serve as the key.
const WEBSOCKET: &[u8] = b"connection: upgrade\r\nupgrade: websocket\r\n\
                           sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";

/// Writes a request's head in the form of HTTP/1.1. Returns `None` if the request names two different hosts. A body of
/// unknown length becomes a chunked one.
pub(crate) fn request_head<B>(request: &Request<B>, has_body: bool) -> Option<Vec<u8>> {
    let (uri, fields) = (request.uri(), request.headers());
    let authority = uri.authority().map(|authority| authority.as_str().as_bytes());
    let mut hosts = fields.get_all(HOST).iter().map(HeaderValue::as_bytes);
    let host = hosts.next();
    if hosts.next().is_some() {
        return None;
    }
    if let (Some(authority), Some(host)) = (authority, host)
        && !authority.eq_ignore_ascii_case(host)
    {
        return None;
    }
    let opens_websocket = opens_websocket(request);
    let path = uri.path_and_query().map(|path| path.as_str().as_bytes());
    let (method, target) = match request.method() {
        _ if opens_websocket => ("GET", path),
        method if *method == Method::CONNECT => ("CONNECT", authority),
        method => (method.as_str(), path),
    };
    let mut head = Vec::with_capacity(256);
    head.extend_from_slice(method.as_bytes());
    head.push(b' ');
    head.extend_from_slice(target.unwrap_or(b"/"));
    head.extend_from_slice(b" HTTP/1.1\r\n");
    if let Some(host) = authority.or(host) {
        push_field(&mut head, b"host", host);
    }
    for name in fields.keys().filter(|name| *name != HOST) {
        if name == COOKIE {
            push_field(&mut head, b"cookie", &cookies(fields));
        } else {
            let values = fields.get_all(name).iter();
            values.for_each(|value| {
                push_field(&mut head, name.as_str().as_bytes(), value.as_bytes())
            });
        }
    }
    if opens_websocket {
        head.extend_from_slice(WEBSOCKET);
    } else if has_body && !fields.contains_key(CONTENT_LENGTH) {
        push_field(&mut head, b"transfer-encoding", b"chunked");
    }
    head.extend_from_slice(b"\r\n");
    Some(head)
}

/// Whether a request opens a WebSocket (RFC 8441, section 4).
pub(crate) fn opens_websocket<B>(request: &Request<B>) -> bool {
    let protocol = request.extensions().get::<Protocol>();
    protocol.is_some_and(|protocol| protocol.as_str() == "websocket")
}

/// Joins the cookies, each of which a client may send in a separate field (RFC 9113, section 8.2.3).
fn cookies(fields: &HeaderMap) -> Vec<u8> {
    let crumbs: Vec<_> = fields.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    crumbs.join(&b"; "[..])
}

fn push_field(head: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    head.extend_from_slice(name);
    head.extend_from_slice(b": ");
    head.extend_from_slice(value);
    head.extend_from_slice(b"\r\n");
}

/// Reads a response's head, as a server of HTTP/1 writes it, without the fields that concern a connection.
///
/// If the request `opens_websocket`, a response that switches protocols becomes a 200, and any other successful
/// response becomes a 501, since the client would take a 200 for a WebSocket. For other requests, a response that
/// switches protocols becomes a 500.
pub(crate) fn response_head(head: &[u8], opens_websocket: bool) -> Response<()> {
    let mut lines = head.split(|byte| *byte == b'\n').map(|line| line.trim_suffix_cr());
    let status = lines.next().and_then(|line| line.get(9..12));
    let status = status.and_then(|digits| StatusCode::from_bytes(digits).ok());
    let mut response = Response::new(());
    *response.status_mut() = match status {
        Some(StatusCode::SWITCHING_PROTOCOLS) if opens_websocket => StatusCode::OK,
        Some(StatusCode::SWITCHING_PROTOCOLS) | None => StatusCode::INTERNAL_SERVER_ERROR,
        Some(status) if opens_websocket && status.is_success() => StatusCode::NOT_IMPLEMENTED,
        Some(status) => status,
    };
    let fields = response.headers_mut();
    for line in lines.take_while(|line| !line.is_empty()) {
        if let Some((name, value)) = split_field(line)
            && !CONNECTION_FIELDS.iter().any(|field| field.eq_ignore_ascii_case(name))
            && let (Ok(name), Ok(value)) =
                (HeaderName::from_bytes(name), HeaderValue::from_bytes(value))
        {
            fields.append(name, value);
        }
    }
    response
}

/// Returns the length of the HTTP/1 head at the start of `bytes`, including the empty line.
pub(crate) fn head_bytes(bytes: &[u8]) -> usize {
    bytes.windows(4).position(|four| four == b"\r\n\r\n").map_or(bytes.len(), |at| at + 4)
}

fn split_field(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    Some((&line[..colon], line[colon + 1..].trim_ascii()))
}

trait TrimSuffix {
    fn trim_suffix_cr(&self) -> &Self;
}

impl TrimSuffix for [u8] {
    fn trim_suffix_cr(&self) -> &[u8] {
        self.strip_suffix(b"\r").unwrap_or(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(request: http::request::Builder) -> Option<String> {
        let head = request_head(&request.body(()).unwrap(), false)?;
        Some(String::from_utf8(head).unwrap())
    }

    #[test]
    fn a_request_is_written_as_by_a_client_of_http_1() {
        let request = Request::get("https://example.test:8443/a?b=c%20d")
            .header("cookie", "a=1")
            .header("x-one", "1")
            .header("cookie", "b=2")
            .header("x-one", "2");
        let text = "GET /a?b=c%20d HTTP/1.1\r\nhost: example.test:8443\r\ncookie: a=1; b=2\r\n\
                    x-one: 1\r\nx-one: 2\r\n\r\n";
        assert_eq!(head(request).as_deref(), Some(text));
        let without = Request::post("/").header("host", "a");
        assert_eq!(head(without).as_deref(), Some("POST / HTTP/1.1\r\nhost: a\r\n\r\n"));
    }

    #[test]
    fn a_body_of_unknown_length_is_in_chunks() {
        let post = || Request::post("http://a/");
        let written = |request: http::request::Builder| {
            String::from_utf8(request_head(&request.body(()).unwrap(), true).unwrap()).unwrap()
        };
        assert!(written(post()).ends_with("host: a\r\ntransfer-encoding: chunked\r\n\r\n"));
        let known = written(post().header("content-length", "5"));
        assert!(known.ends_with("host: a\r\ncontent-length: 5\r\n\r\n"));
    }

    #[test]
    fn two_hosts_are_refused_and_one_host_twice_is_one() {
        assert_eq!(head(Request::get("http://a/").header("host", "b")), None);
        let twice = Request::get("http://a/").header("host", "a").header("host", "b");
        assert_eq!(head(twice), None);
        let same = head(Request::get("http://a.test/").header("host", "A.test"));
        assert_eq!(same.as_deref(), Some("GET / HTTP/1.1\r\nhost: a.test\r\n\r\n"));
    }

    #[test]
    fn a_response_loses_what_is_about_connections() {
        let response = response_head(
            b"HTTP/1.1 404 Not Found\r\nContent-Type: a\r\nset-cookie: a\r\nSet-Cookie:  b \r\n\
              Connection: close\r\ntransfer-encoding: chunked\r\n\r\nbody: x\r\n",
            false,
        );
        assert_eq!(response.status(), 404);
        let fields: Vec<_> = response.headers().iter().collect();
        let text = format!("{fields:?}");
        assert_eq!(text, r#"[("content-type", "a"), ("set-cookie", "a"), ("set-cookie", "b")]"#);
    }

    #[test]
    fn a_switch_of_protocols_is_an_error() {
        let status = |head: &[u8]| response_head(head, false).status();
        assert_eq!(status(b"HTTP/1.1 101 Switching\r\n\r\n"), 500);
        assert_eq!(status(b"HTTP/1.1 103 Early Hints\r\n\r\n"), 103);
    }

    #[test]
    fn a_websocket_is_asked_for_as_over_http_1_and_its_switch_is_a_200() {
        let request = Request::connect("https://example.test/room?a=b")
            .header("sec-websocket-version", "13")
            .extension(Protocol::from_static("websocket"));
        let head = request_head(&request.body(()).unwrap(), true).unwrap();
        let text = "GET /room?a=b HTTP/1.1\r\nhost: example.test\r\nsec-websocket-version: 13\r\n\
                    connection: upgrade\r\nupgrade: websocket\r\n\
                    sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";
        assert_eq!(String::from_utf8(head).unwrap(), text);
        let switch =
            b"HTTP/1.1 101 a\r\nupgrade: websocket\r\nsec-websocket-accept: b\r\nc: d\r\n\r\n";
        let response = response_head(switch, true);
        let names: Vec<_> = response.headers().keys().map(HeaderName::as_str).collect();
        assert_eq!((response.status().as_u16(), names), (200, vec!["c"]));
        // A client would take an ordinary page for a WebSocket.
        assert_eq!(response_head(b"HTTP/1.1 200 OK\r\n\r\n", true).status(), 501);
        assert_eq!(response_head(b"HTTP/1.1 403 Forbidden\r\n\r\n", true).status(), 403);
    }

    #[test]
    fn the_body_begins_behind_the_empty_line() {
        assert_eq!(head_bytes(b"HTTP/1.1 200 OK\r\na: b\r\n\r\n\r\n\r\n"), 25);
        assert_eq!(head_bytes(b"HTTP/1.1 200 OK\r\n"), 17);
    }
}
