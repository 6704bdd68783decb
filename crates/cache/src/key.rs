//! The name under which a response is stored.
//!
//! A name consists of the URL, the fields by which frameworks change the URL that they see, and the fields in `Vary`.
//! Records hold whole names, which are compared: a hash alone never finds a response.

use thruway_http1::field::members;

/// Fields from which frameworks take the host, the scheme or the path of a request instead of its own. If the name
/// lacked them, one client could have pages stored for all others that link to a host of its choice.
const ROUTING: [&[u8]; 10] = [
    b"x-forwarded-host",
    b"x-forwarded-port",
    b"x-forwarded-proto",
    b"x-forwarded-scheme",
    b"x-forwarded-ssl",
    b"x-forwarded-prefix",
    b"x-original-url",
    b"x-rewrite-url",
    b"x-script-name",
    b"x-http-method-override",
];

/// The members of `Forwarded` that name clients and proxies, and have no such meaning.
const FORWARDED_NODES: [&[u8]; 2] = [b"for", b"by"];

/// The parts of a name that the request alone determines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Key {
    /// The URL, a line break, and the routing fields in lines.
    bytes: Vec<u8>,
    url_bytes: usize,
}

impl Key {
    /// Returns the key of a request for `path` and `query` at `host`.
    pub fn new<'a>(
        is_https: bool,
        host: &[u8],
        path: &[u8],
        query: Option<&[u8]>,
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Self {
        let mut bytes = Vec::with_capacity(host.len() + path.len() + 64);
        write_origin(&mut bytes, is_https, host);
        bytes.extend_from_slice(path);
        if let Some(query) = query {
            bytes.push(b'?');
            bytes.extend_from_slice(query);
        }
        let url_bytes = bytes.len();
        bytes.push(b'\n');
        for (name, value) in fields {
            write_routing(&mut bytes, name, value);
        }
        Self { bytes, url_bytes }
    }

    /// Returns the URL, with its scheme and host in lower case.
    #[must_use]
    pub fn url(&self) -> &[u8] {
        &self.bytes[..self.url_bytes]
    }

    /// Returns the scheme and the host of the URL, without a slash at the end.
    #[must_use]
    pub fn origin(&self) -> &[u8] {
        let url = self.url();
        let start = url.iter().position(|byte| *byte == b':').map_or(0, |at| at + 3);
        let end = url[start..].iter().position(|byte| *byte == b'/');
        &url[..end.map_or(url.len(), |at| start + at)]
    }

    /// Returns the name of the response that does not vary, or of the list of fields by which it varies.
    #[must_use]
    pub fn base(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the name of the variant for a request with the fields. `vary` is the result of [`vary_list`].
    pub fn variant<'a>(
        &self,
        vary: &[u8],
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    ) -> Vec<u8> {
        let mut name = self.bytes.clone();
        for wanted in members(vary) {
            name.push(b'\n');
            name.extend_from_slice(wanted);
            for (_, value) in fields.clone().filter(|(name, _)| name.eq_ignore_ascii_case(wanted)) {
                // No value has the byte that separates the lines of a field.
                name.push(0);
                // Whitespace between members has no meaning.
                for member in members(value) {
                    name.extend_from_slice(member);
                    name.push(b',');
                }
            }
        }
        name
    }

    /// Returns the URL that a `Location` or `Content-Location` field names, if it is of the same origin.
    #[must_use]
    pub fn same_origin(&self, location: &[u8]) -> Option<Vec<u8>> {
        let location = location.split(|byte| *byte == b'#').next().unwrap_or_default();
        let origin = self.origin();
        if location.starts_with(b"//") {
            return None;
        }
        if location.starts_with(b"/") {
            return Some([origin, location].concat());
        }
        let (start, rest) = location.split_at_checked(origin.len())?;
        let is_same =
            start.eq_ignore_ascii_case(origin) && matches!(rest.first(), None | Some(b'/'));
        let rest = if rest.is_empty() { b"/" } else { rest };
        is_same.then(|| [origin, rest].concat())
    }
}

fn write_origin(out: &mut Vec<u8>, is_https: bool, host: &[u8]) {
    out.extend_from_slice(if is_https { b"https://" } else { b"http://" });
    out.extend(host.iter().map(u8::to_ascii_lowercase));
}

fn write_routing(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let is_candidate = matches!(name.first(), Some(b'x' | b'X' | b'f' | b'F'));
    if !is_candidate {
        return;
    }
    if name.eq_ignore_ascii_case(b"forwarded") {
        let parts = value.split(|byte| matches!(byte, b',' | b';')).map(<[u8]>::trim_ascii);
        for part in parts.filter(|part| !part.is_empty() && !is_forwarded_node(part)) {
            write_line(out, b"forwarded", part);
        }
    } else if let Some(known) = ROUTING.iter().find(|known| name.eq_ignore_ascii_case(known)) {
        write_line(out, known, value);
    }
}

/// Whether a part of `Forwarded` certainly names a client or a proxy alone. Frameworks read malformed fields in
/// different ways: with spaces around `=`, or with a separator in a quoted value. Any such part belongs to the key.
fn is_forwarded_node(part: &[u8]) -> bool {
    let Some(at) = part.iter().position(|byte| *byte == b'=') else { return false };
    let (name, value) = (part[..at].trim_ascii(), part[at + 1..].trim_ascii());
    let is_quoted = value.len() > 1 && value.starts_with(b"\"") && value.ends_with(b"\"");
    let inner = if is_quoted { &value[1..value.len() - 1] } else { value };
    let is_plain = !inner.iter().any(|byte| matches!(byte, b'"' | b'\\' | b'='));
    is_plain && FORWARDED_NODES.iter().any(|node| name.eq_ignore_ascii_case(node))
}

fn write_line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.push(b':');
    out.extend_from_slice(value);
    out.push(b'\n');
}

/// Returns a URL as in names: scheme and host in lower case, and a path. `None` for anything but an absolute HTTP URL.
#[must_use]
pub fn normal_url(url: &[u8]) -> Option<Vec<u8>> {
    let start = url.windows(3).position(|three| three == b"://")? + 3;
    let is_https = match url[..start].to_ascii_lowercase().as_slice() {
        b"http://" => false,
        b"https://" => true,
        _ => return None,
    };
    let end = url[start..].iter().position(|byte| matches!(byte, b'/' | b'?' | b'#'));
    let (host, rest) = url[start..].split_at(end.unwrap_or(url.len() - start));
    let rest = rest.split(|byte| *byte == b'#').next().unwrap_or_default();
    let mut normal = Vec::with_capacity(url.len() + 1);
    write_origin(&mut normal, is_https, host);
    if !rest.starts_with(b"/") {
        normal.push(b'/');
    }
    normal.extend_from_slice(rest);
    (!host.is_empty()).then_some(normal)
}

/// Returns the names in all `Vary` fields: in lower case, sorted, each once, joined by commas. Empty without the field.
pub fn vary_list<'a>(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Vec<u8> {
    let lines = fields.filter(|(name, _)| name.eq_ignore_ascii_case(b"vary"));
    let mut names: Vec<_> =
        lines.flat_map(|(_, value)| members(value)).map(<[u8]>::to_ascii_lowercase).collect();
    names.sort_unstable();
    names.dedup();
    names.join(&b',')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(host: &str, path: &str, lines: &str) -> Key {
        Key::new(true, host.as_bytes(), path.as_bytes(), Some(b"q=1"), fields(lines))
    }

    fn fields(lines: &str) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
        lines
            .split('|')
            .filter_map(|line| line.split_once(": "))
            .map(|(n, v)| (n.as_bytes(), v.as_bytes()))
    }

    #[test]
    fn a_key_is_the_url_and_what_frameworks_take_in_its_place() {
        let plain = key("A.example:8080", "/p", "Host: a|Accept: b|X-Forwarded-For: 192.0.2.1");
        assert_eq!(plain.url(), b"https://a.example:8080/p?q=1");
        assert_eq!(plain.origin(), b"https://a.example:8080");
        assert_eq!(plain, key("a.EXAMPLE:8080", "/p", ""));
        for lines in [
            "X-Forwarded-Host: evil.example",
            "x-forwarded-host: ",
            "Forwarded: for=192.0.2.1;HOST=evil.example",
            "X-Original-URL: /other",
            "Forwarded: host = evil.example",
            "Forwarded: for=192.0.2.1 , Proto\t=http",
            "Forwarded: for=\"a;host=evil.example\"",
            "Forwarded: for=a\\;host=evil.example",
            "Forwarded: evil",
        ] {
            assert_ne!(key("a.example:8080", "/p", lines), plain, "{lines}");
        }
        for lines in ["Forwarded: for=192.0.2.1", "Forwarded: By = \"[2001:db8::1]:47\"; ,for=a"] {
            assert_eq!(key("a.example:8080", "/p", lines), plain, "{lines}");
        }
        assert_ne!(key("a.example:8080", "/P", ""), plain);
    }

    #[test]
    fn variants_differ_where_the_fields_do() {
        let key = key("a", "/", "");
        let vary = vary_list(fields("Vary: Accept-Encoding|X-A: b|vary: Accept,accept-encoding"));
        assert_eq!(vary, b"accept,accept-encoding");
        let variant = |lines| key.variant(&vary, fields(lines));
        assert_eq!(variant("Accept-Encoding: gzip, br"), variant("accept-encoding:  gzip,br|X: y"));
        assert_ne!(variant("Accept-Encoding: gzip"), variant("Accept: gzip"));
        assert_ne!(variant("Accept-Encoding: gzip"), variant(""));
        assert_ne!(variant("Accept: "), variant(""), "an empty field is a field");
        assert_ne!(variant(""), key.base());
        assert_ne!(variant("Accept: a|Accept: b"), variant("Accept: a, :b"));
    }

    #[test]
    fn locations_count_if_they_are_of_the_same_origin() {
        let key = key("a.example", "/p", "");
        for (location, url) in [
            ("/x?y#z", Some("https://a.example/x?y")),
            ("https://A.example/x", Some("https://a.example/x")),
            ("https://a.example", Some("https://a.example/")),
            ("https://a.example.evil/x", None),
            ("http://a.example/x", None),
            ("//a.example/x", None),
            ("x", None),
        ] {
            let got = key.same_origin(location.as_bytes());
            assert_eq!(got.as_deref(), url.map(str::as_bytes), "{location}");
        }
    }

    #[test]
    fn urls_to_purge_are_written_as_names_hold_them() {
        for (url, normal) in [
            ("HTTP://A.example/Path?q#f", Some("http://a.example/Path?q")),
            ("https://a.example:8443", Some("https://a.example:8443/")),
            ("http://a.example?q", Some("http://a.example/?q")),
            ("ftp://a/", None),
            ("http:///p", None),
            ("/p", None),
            ("", None),
        ] {
            assert_eq!(normal_url(url.as_bytes()).as_deref(), normal.map(str::as_bytes), "{url}");
        }
    }
}
