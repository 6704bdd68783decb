//! Responses on a plain HTTP listener whose site gets its certificates from an ACME agent: answers to challenges, and
//! redirects to HTTPS.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;

use thruway_http1::Request;

use crate::exchange::cached::request::is_https;
use crate::exchange::own_response;
use crate::listen::secure_site::SecureSite;
use crate::store::entry_mut::EntryMut;

/// The path of the answers to HTTP-01 challenges (RFC 8555, section 8.3).
const CHALLENGES: &[u8] = b"/.well-known/acme-challenge/";

/// The maximum size of an answer to a challenge in bytes: a token and the hash of a key.
const ANSWER_BYTES_MAX: u64 = 1024;

/// The default port of HTTPS, which URLs omit.
const HTTPS_PORT: u16 = 443;

/// The time in seconds after which a client should retry while the first certificate is being obtained.
const RETRY_S: &str = "10";

/// A response of the server itself.
pub(crate) struct SiteResponse {
    status: u16,
    fields: Vec<(&'static [u8], Vec<u8>)>,
    body: Vec<u8>,
}

impl SiteResponse {
    fn text(status: u16, text: &str) -> Self {
        let fields = vec![(&b"Content-Type"[..], b"text/plain; charset=utf-8".to_vec())];
        Self { status, fields, body: format!("{status} {text}\n").into_bytes() }
    }

    fn with(mut self, name: &'static [u8], value: impl Into<Vec<u8>>) -> Self {
        self.fields.push((name, value.into()));
        self
    }
}

/// Returns the server's own response to a request, if the request is not for the application.
#[inline]
pub(crate) fn response_to(entry: &mut EntryMut<'_>, request: &Request<'_>) -> Option<SiteResponse> {
    let site = Arc::clone(entry.store.sites.get(usize::from(entry.listener))?.as_ref()?);
    response_of(&site, entry, request)
}

fn response_of(
    site: &Arc<SecureSite>,
    entry: &mut EntryMut<'_>,
    request: &Request<'_>,
) -> Option<SiteResponse> {
    if let Some(token) = request.path().strip_prefix(CHALLENGES)
        && let Some(answer) = answer(site, token)
    {
        let found = SiteResponse { status: 200, fields: Vec::new(), body: answer };
        return Some(found.with(b"Content-Type", &b"application/octet-stream"[..]));
    }
    let port = site.https_port?;
    // The listener has no TLS, so a proxy must have reported HTTPS.
    if is_https(entry, request) {
        return None;
    }
    // An unknown host never becomes the target of a redirect.
    let named = request.host().map(name_in).unwrap_or_default();
    let name = site.names.iter().find(|name| named.eq_ignore_ascii_case(name.as_bytes()));
    let name = name.or(site.names.first())?;
    entry.store.look_at_certificates();
    if !entry.store.tls.has_certificate(name) {
        let wait = SiteResponse::text(503, &format!("the certificate of {name} is being obtained"));
        return Some(wait.with(b"Retry-After", RETRY_S));
    }
    let authority = if port == HTTPS_PORT { name.clone() } else { format!("{name}:{port}") };
    let mut location = format!("https://{authority}").into_bytes();
    location.extend(path_and_query(request.target()));
    let is_read = matches!(request.method(), b"GET" | b"HEAD");
    let status = if is_read { 301 } else { 308 };
    Some(SiteResponse::text(status, "this site is served by HTTPS").with(b"Location", location))
}

/// Sends the server's own response; `rest` is the input behind the request.
pub(crate) fn respond(entry: EntryMut<'_>, request: &Request<'_>, rest: &[u8], own: &SiteResponse) {
    let begun = own_response::begin(entry, request, rest);
    let fields = own.fields.iter().map(|(name, value)| (*name, value.as_slice()));
    own_response::send(begun, own.status, fields, &own.body);
}

/// Returns the answer to a challenge, if the agent has written an answer.
fn answer(site: &Arc<SecureSite>, token: &[u8]) -> Option<Vec<u8>> {
    let file = File::open(site.folder.http_answer(token)?).ok()?;
    let mut answer = Vec::new();
    file.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).ok()?;
    Some(answer)
}

/// Returns the name in a `Host` field, without the port.
fn name_in(host: &[u8]) -> &[u8] {
    let end = host.iter().position(|byte| *byte == b':').unwrap_or(host.len());
    let name = &host[..end];
    name.strip_suffix(b".").unwrap_or(name)
}

/// Returns the path and query of a target, which may be an absolute URL.
fn path_and_query(target: &[u8]) -> &[u8] {
    if target.starts_with(b"/") {
        return target;
    }
    let rest = target.windows(3).position(|part| part == b"://").map(|at| &target[at + 3..]);
    let path = rest.and_then(|rest| Some(&rest[rest.iter().position(|byte| *byte == b'/')?..]));
    path.unwrap_or(b"/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_and_the_path_are_found_in_what_clients_send() {
        assert_eq!(name_in(b"a.example:80"), b"a.example");
        assert_eq!(name_in(b"a.example."), b"a.example");
        assert_eq!(name_in(b""), b"");
        for (target, path) in [
            (&b"/a?b=c"[..], &b"/a?b=c"[..]),
            (b"//evil.example/a", b"//evil.example/a"),
            (b"http://a.example/b?c", b"/b?c"),
            (b"http://a.example", b"/"),
            (b"*", b"/"),
        ] {
            assert_eq!(path_and_query(target), path);
        }
    }
}
