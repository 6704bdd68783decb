//! The Rack environment of a request.
//!
//! Each is a copy of a template, into which the request's own values are put. Clients repeat their
//! fields from request to request, so a copy with the fields already in it is kept for lines that have
//! come twice. Applications may change what they are given: kept Strings are handed out as copies
//! that share their bytes.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::net::IpAddr;
use std::sync::Arc;

use rb_sys::VALUE;
use thruway_http1::field::members;
use thruway_http1::{KnownField, Request, Version};
use thruway_serve::Peer;

use super::gvl::{Gvl, NIL};
use super::roots::{Root, Roots};

/// Field names whose keys are kept; names beyond are made anew each time.
const KEYS_MAX: usize = 1024;

/// Lines whose environments are kept.
const MEMOS_MAX: usize = 128;

/// Longer lines are not worth comparing.
const MEMO_BYTES_MAX: usize = 4 << 10;

/// Makes environments.
pub(super) struct Environments {
    roots: Arc<Roots>,
    template: Root,
    keys: Keys,
    names: HashMap<Vec<u8>, Root>,
    memos: Vec<Memo>,
    peers: Option<(IpAddr, Root)>,
}

/// The keys that every environment has.
struct Keys {
    method: Root,
    path: Root,
    query: Root,
    uri: Root,
    request_path: Root,
    protocol: Root,
    remote: Root,
    server_name: Root,
    server_port: Root,
    content_length: Root,
    content_type: Root,
    after_reply: Root,
    finished: Root,
    hijack: Root,
    empty: Root,
    get: Root,
    http_10: Root,
    scheme: Root,
    https: Root,
    https_port: Root,
}

/// What is known of some field lines.
#[derive(Default)]
struct Memo {
    hash: u64,
    lines: Vec<u8>,
    kept: Option<Kept>,
}

/// An environment with fields in it, and those fields once more.
struct Kept {
    env: Root,
    fields: Vec<(Root, Root)>,
}

/// The value of a request that is not in its fields.
struct Own<'a> {
    method: &'a [u8],
    path: &'a [u8],
    query: &'a [u8],
    uri: &'a [u8],
}

impl Environments {
    /// `template` holds what is the same for all requests.
    pub(super) fn new(gvl: Gvl, roots: &Arc<Roots>, template: VALUE) -> Self {
        let keys = Keys::new(gvl, roots);
        // A place for each value, so that to set it later only replaces it.
        let env = roots.keep(gvl.dup_hash(template));
        for key in keys.in_every_environment() {
            if gvl.at(env.value(), key) == NIL {
                gvl.set(env.value(), key, keys.empty.value());
            }
        }
        Self {
            roots: Arc::clone(roots),
            template: env,
            keys,
            names: HashMap::new(),
            memos: (0..MEMOS_MAX).map(|_| Memo::default()).collect(),
            peers: None,
        }
    }

    /// The environment of `request`, without its body.
    pub(super) fn make(&mut self, gvl: Gvl, request: &Request<'_>, peer: Peer) -> VALUE {
        let env = self.with_fields(gvl, request);
        let own = Own {
            method: request.method(),
            path: request.path(),
            query: request.query().unwrap_or_default(),
            uri: request.target(),
        };
        self.set_own(gvl, env, &own);
        if request.version() == Version::Http10 {
            gvl.set(env, self.keys.protocol.value(), self.keys.http_10.value());
        }
        if peer.is_trusted() && is_https(request) {
            self.set_https(gvl, env, request);
        }
        if let Peer::Tcp(address) = peer {
            let remote = self.remote(gvl, address.ip());
            gvl.set(env, self.keys.remote.value(), gvl.dup_string(remote));
        }
        gvl.set(env, self.keys.after_reply.value(), gvl.array());
        gvl.set(env, self.keys.finished.value(), gvl.array());
        env
    }

    /// Sets the length of a body whose framing has been taken away.
    pub(super) fn set_length(&self, gvl: Gvl, env: VALUE, length: u64) {
        let text = gvl.string(length.to_string().as_bytes());
        gvl.set(env, self.keys.content_length.value(), text);
    }

    /// Sets what takes the request's connection.
    pub(super) fn set_hijack(&self, gvl: Gvl, env: VALUE, hijack: VALUE) {
        gvl.set(env, self.keys.hijack.value(), hijack);
    }

    /// The callbacks for after the answer: `rack.after_reply` and `rack.response_finished`.
    pub(super) fn callbacks(&self, gvl: Gvl, env: VALUE) -> [VALUE; 2] {
        [gvl.at(env, self.keys.after_reply.value()), gvl.at(env, self.keys.finished.value())]
    }

    /// A proxy speaks TLS with the client. The port is the one of its scheme, if the host has none.
    fn set_https(&self, gvl: Gvl, env: VALUE, request: &Request<'_>) {
        gvl.set(env, self.keys.scheme.value(), self.keys.https.value());
        if port_of(request.host().unwrap_or_default()).is_empty() {
            gvl.set(env, self.keys.server_port.value(), self.keys.https_port.value());
        }
    }

    fn set_own(&self, gvl: Gvl, env: VALUE, own: &Own<'_>) {
        let keys = &self.keys;
        let method = match own.method {
            b"GET" => keys.get.value(),
            other => gvl.interned(other),
        };
        gvl.set(env, keys.method.value(), method);
        let path = gvl.string(own.path);
        gvl.set(env, keys.path.value(), path);
        gvl.set(env, keys.request_path.value(), path);
        gvl.set(env, keys.uri.value(), gvl.string(own.uri));
        // What has no query must not share one that an application may change.
        gvl.set(env, keys.query.value(), gvl.string(own.query));
    }

    /// A copy of the template with the request's fields in it.
    fn with_fields(&mut self, gvl: Gvl, request: &Request<'_>) -> VALUE {
        let lines = request.field_lines();
        // A target with a host in it goes before the field of that name.
        let is_plain = request.target().starts_with(b"/");
        if !is_plain || lines.is_empty() || lines.len() > MEMO_BYTES_MAX {
            return self.fill_template(gvl, request).0;
        }
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(lines);
        // The remainder is below MEMOS_MAX.
        let place = usize::try_from(hash % MEMOS_MAX as u64).unwrap_or(0);
        let memo = &self.memos[place];
        if memo.hash != hash {
            self.memos[place] = Memo { hash, ..Memo::default() };
            return self.fill_template(gvl, request).0;
        }
        match &memo.kept {
            Some(kept) if memo.lines == lines => kept.copy(gvl),
            Some(_) => self.fill_template(gvl, request).0,
            None => {
                let (env, fields) = self.fill_template(gvl, request);
                let keep = |value| self.roots.keep(value);
                let fields = fields.iter().map(|(key, value)| (keep(*key), keep(*value))).collect();
                let kept = Kept { env: keep(env), fields };
                let copy = kept.copy(gvl);
                self.memos[place] = Memo { hash, lines: lines.to_vec(), kept: Some(kept) };
                copy
            }
        }
    }

    /// A copy of the template, with every field of the request set, and those fields.
    fn fill_template(&mut self, gvl: Gvl, request: &Request<'_>) -> (VALUE, Vec<(VALUE, VALUE)>) {
        let env = gvl.dup_hash(self.template.value());
        let mut fields = Vec::with_capacity(request.fields().len());
        for (name, value) in request.fields() {
            // The framing has been taken away, and nginx drops names with underscores, too: they
            // could pass for names with dashes.
            if name.contains(&b'_') || name.eq_ignore_ascii_case(b"transfer-encoding") {
                continue;
            }
            let key = self.key(gvl, name);
            let value = match fields.iter().find(|(other, _)| *other == key) {
                Some((_, before)) => joined(gvl, name, *before, value),
                None => gvl.string(value),
            };
            fields.retain(|(other, _)| *other != key);
            fields.push((key, value));
            gvl.set(env, key, value);
        }
        self.set_host(gvl, env, request);
        (env, fields)
    }

    fn set_host(&self, gvl: Gvl, env: VALUE, request: &Request<'_>) {
        let Some(host) = request.host() else { return };
        let port = port_of(host);
        let name = &host[..host.len() - port.len()];
        let name = name.strip_suffix(b":").unwrap_or(name);
        let port = if port.is_empty() { &b"80"[..] } else { port };
        gvl.set(env, self.keys.server_name.value(), gvl.interned(name));
        gvl.set(env, self.keys.server_port.value(), gvl.interned(port));
        if !request.target().starts_with(b"/") {
            gvl.set(env, gvl.interned(b"HTTP_HOST"), gvl.string(host));
        }
    }

    /// The key of a field's name.
    fn key(&mut self, gvl: Gvl, name: &[u8]) -> VALUE {
        if name.eq_ignore_ascii_case(b"content-length") {
            return self.keys.content_length.value();
        }
        if name.eq_ignore_ascii_case(b"content-type") {
            return self.keys.content_type.value();
        }
        let capital = |byte: &u8| if *byte == b'-' { b'_' } else { byte.to_ascii_uppercase() };
        let mut key = b"HTTP_".to_vec();
        key.extend(name.iter().map(capital));
        if let Some(root) = self.names.get(&key) {
            return root.value();
        }
        let value = gvl.interned(&key);
        if self.names.len() < KEYS_MAX {
            let root = self.roots.keep(value);
            self.names.insert(key, root);
        }
        value
    }

    fn remote(&mut self, gvl: Gvl, address: IpAddr) -> VALUE {
        match &self.peers {
            Some((known, root)) if *known == address => root.value(),
            _ => {
                let root = self.roots.keep(gvl.interned(address.to_string().as_bytes()));
                let value = root.value();
                self.peers = Some((address, root));
                value
            }
        }
    }
}

impl Kept {
    /// The environment once more, with Strings of its own.
    fn copy(&self, gvl: Gvl) -> VALUE {
        let env = gvl.dup_hash(self.env.value());
        for (key, value) in &self.fields {
            gvl.set(env, key.value(), gvl.dup_string(value.value()));
        }
        env
    }
}

impl Keys {
    fn new(gvl: Gvl, roots: &Arc<Roots>) -> Self {
        let keep = |text: &str| roots.keep(gvl.interned(text.as_bytes()));
        Self {
            method: keep("REQUEST_METHOD"),
            path: keep("PATH_INFO"),
            query: keep("QUERY_STRING"),
            uri: keep("REQUEST_URI"),
            request_path: keep("REQUEST_PATH"),
            protocol: keep("SERVER_PROTOCOL"),
            remote: keep("REMOTE_ADDR"),
            server_name: keep("SERVER_NAME"),
            server_port: keep("SERVER_PORT"),
            content_length: keep("CONTENT_LENGTH"),
            content_type: keep("CONTENT_TYPE"),
            after_reply: keep("rack.after_reply"),
            finished: keep("rack.response_finished"),
            hijack: keep("rack.hijack"),
            empty: keep(""),
            get: keep("GET"),
            http_10: keep("HTTP/1.0"),
            scheme: keep("rack.url_scheme"),
            https: keep("https"),
            https_port: keep("443"),
        }
    }

    fn in_every_environment(&self) -> [VALUE; 9] {
        [
            self.method.value(),
            self.path.value(),
            self.query.value(),
            self.uri.value(),
            self.request_path.value(),
            self.remote.value(),
            self.after_reply.value(),
            self.finished.value(),
            self.hijack.value(),
        ]
    }
}

/// Whether a proxy says that the client has asked it by TLS.
fn is_https(request: &Request<'_>) -> bool {
    let proto = request.known(KnownField::ForwardedProto);
    let first = proto.and_then(|proto| members(proto).next());
    first.is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"https"))
}

/// The port of a host, such as that of `[::1]:80`.
fn port_of(host: &[u8]) -> &[u8] {
    let from = host.iter().position(|byte| *byte == b']').unwrap_or(0);
    let colon = host[from..].iter().position(|byte| *byte == b':').map(|at| from + at);
    colon.map_or(&b""[..], |colon| &host[colon + 1..])
}

/// The value of a field that stands twice.
fn joined(gvl: Gvl, name: &[u8], before: VALUE, value: &[u8]) -> VALUE {
    let between: &[u8] = if name.eq_ignore_ascii_case(b"cookie") { b"; " } else { b", " };
    // SAFETY: no Ruby code runs before the bytes are copied.
    let before = unsafe { gvl.bytes(before) };
    gvl.string(&[before, between, value].concat())
}
