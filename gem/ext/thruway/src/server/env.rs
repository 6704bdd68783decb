//! The Rack environment of a request.
//!
//! Each environment is a copy of a template, to which the request's values are added. Clients repeat their fields
//! from request to request, so for field lines that have occurred twice, a copy with these fields is kept.
//! Applications may change the Strings that they receive: kept Strings are passed as copies that share their bytes.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use rb_sys::VALUE;
use thruway_http1::{Request, Version};
use thruway_serve::Peer;

use super::roots::{Root, Roots};
use super::upgrade::{Upgrade, may_upgrade};
use crate::ruby::{Gvl, NIL, NewHash, RArray, RHash, RString, boolean};

/// The number of field names whose keys are kept. Keys for further names are created each time.
const KEYS_MAX: usize = 1024;

/// The number of field lines whose environments are kept.
const MEMOS_MAX: usize = 128;

/// Longer lines cost more to compare than they save.
const MEMO_BYTES_MAX: usize = 4 << 10;

/// Creates environments.
pub(super) struct Environments {
    roots: Arc<Roots>,
    template: Root<RHash>,
    keys: Keys,
    names: HashMap<Vec<u8>, Root<RString>>,
    memos: Vec<Memo>,
    peers: Option<(IpAddr, Root<RString>)>,
}

/// The keys that every environment has.
struct Keys {
    method: Root<RString>,
    path: Root<RString>,
    query: Root<RString>,
    uri: Root<RString>,
    request_path: Root<RString>,
    protocol: Root<RString>,
    remote: Root<RString>,
    server_name: Root<RString>,
    server_port: Root<RString>,
    content_length: Root<RString>,
    content_type: Root<RString>,
    after_reply: Root<RString>,
    finished: Root<RString>,
    hijack: Root<RString>,
    may_hijack: Root<RString>,
    empty: Root<RString>,
    get: Root<RString>,
    http_10: Root<RString>,
    http_2: Root<RString>,
    scheme: Root<RString>,
    upgrades: Root<RString>,
    upgrade: Root<RString>,
    https: Root<RString>,
    https_port: Root<RString>,
    is_https: Root<RString>,
    on: Root<RString>,
}

/// The memo for one hash of field lines.
#[derive(Default)]
struct Memo {
    hash: u64,
    lines: Vec<u8>,
    kept: Option<KeptEnvironment>,
}

/// An environment with the fields of a request, and a list of these fields. A copy of the environment gets its own
/// String for each field, since applications may change the Strings.
struct KeptEnvironment {
    env: Root<RHash>,
    fields: Vec<(Root<RString>, Root<RString>)>,
    upgrade: Option<Upgrade>,
}

/// The values of a request that do not come from its fields.
struct RequestValues<'a> {
    method: &'a [u8],
    path: &'a [u8],
    query: &'a [u8],
    uri: &'a [u8],
}

impl Environments {
    /// Creates environments from `template`, which holds the values that all requests share.
    pub(super) fn new(gvl: Gvl, roots: &Arc<Roots>, template: RHash) -> Self {
        let keys = Keys::new(gvl, roots);
        // The template has an entry for each key that every environment has, so that a request only replaces values.
        let mut env = NewHash::copy_of(gvl, template);
        for key in keys.in_every_environment() {
            if env.get(gvl, key) == NIL {
                env.set(gvl, key, keys.empty.get().value());
            }
        }
        Self {
            roots: Arc::clone(roots),
            template: roots.keep(gvl, env.into_hash()),
            keys,
            names: HashMap::new(),
            memos: (0..MEMOS_MAX).map(|_| Memo::default()).collect(),
            peers: None,
        }
    }

    /// Returns the environment of `request` without its body, and whether the application may upgrade the connection.
    /// `is_tls` states whether the client speaks TLS with this server, and `is_https` whether it does so with this
    /// server or with a proxy.
    pub(super) fn make(
        &mut self,
        gvl: Gvl,
        request: &Request<'_>,
        peer: Peer,
        [is_tls, is_https]: [bool; 2],
    ) -> (NewHash, bool) {
        let (mut env, upgrade) = self.with_fields(gvl, request);
        let upgrade = upgrade.filter(|_| may_upgrade(request));
        if let Some(upgrade) = upgrade {
            env.set(gvl, self.keys.upgrades.get(), upgrade.to_symbol(gvl));
        }
        let own = RequestValues {
            method: request.method(),
            path: request.path(),
            query: request.query().unwrap_or_default(),
            uri: request.target(),
        };
        self.set_own(gvl, &mut env, &own);
        let protocol = match request.version() {
            Version::Http10 => Some(&self.keys.http_10),
            Version::Http11 => None,
            Version::Http2 => Some(&self.keys.http_2),
        };
        if let Some(protocol) = protocol {
            env.set(gvl, self.keys.protocol.get(), protocol.get().value());
        }
        if request.version() == Version::Http2 {
            // A stream has no connection of its own.
            env.set(gvl, self.keys.may_hijack.get(), boolean(false));
        }
        if is_tls {
            env.set(gvl, self.keys.is_https.get(), self.keys.on.get().value());
        }
        if is_tls || is_https {
            self.set_https(gvl, &mut env, request);
        }
        if let Peer::Tcp(address) = peer {
            let remote = self.remote(gvl, address.ip());
            env.set(gvl, self.keys.remote.get(), remote.dup(gvl).value());
        }
        for key in [&self.keys.after_reply, &self.keys.finished] {
            env.set(gvl, key.get(), RArray::with_room(gvl, 0).value());
        }
        (env, upgrade.is_some())
    }

    /// Sets the length of a body that arrived in chunks.
    pub(super) fn set_length(&self, gvl: Gvl, env: &mut NewHash, length: u64) {
        let text = RString::binary(gvl, length.to_string().as_bytes());
        env.set(gvl, self.keys.content_length.get(), text.value());
    }

    /// Sets the object by which the application can take the connection.
    pub(super) fn set_hijack(&self, gvl: Gvl, env: &mut NewHash, hijack: VALUE) {
        env.set(gvl, self.keys.hijack.get(), hijack);
    }

    /// The callbacks for after the response: `rack.after_reply` and `rack.response_finished`.
    pub(super) fn callbacks(&self, gvl: Gvl, env: VALUE) -> [VALUE; 2] {
        let env = RHash::of(gvl, env);
        [&self.keys.after_reply, &self.keys.finished]
            .map(|key| env.map_or(NIL, |env| env.get(gvl, key.get())))
    }

    /// The handler for the connection's events, if the application requests an upgrade; otherwise nil.
    pub(super) fn upgrade_handler(&self, gvl: Gvl, env: VALUE) -> VALUE {
        RHash::of(gvl, env).map_or(NIL, |env| env.get(gvl, self.keys.upgrade.get()))
    }

    /// Marks the request as HTTPS, with this server or with a proxy. If the host has no port, the port is the
    /// scheme's.
    fn set_https(&self, gvl: Gvl, env: &mut NewHash, request: &Request<'_>) {
        env.set(gvl, self.keys.scheme.get(), self.keys.https.get().value());
        if port_of(request.host().unwrap_or_default()).is_empty() {
            env.set(gvl, self.keys.server_port.get(), self.keys.https_port.get().value());
        }
    }

    fn set_own(&self, gvl: Gvl, env: &mut NewHash, own: &RequestValues<'_>) {
        let keys = &self.keys;
        let method = match own.method {
            b"GET" => keys.get.get(),
            other => RString::interned_bytes(gvl, other),
        };
        env.set(gvl, keys.method.get(), method.value());
        let path = RString::binary(gvl, own.path).value();
        env.set(gvl, keys.path.get(), path);
        env.set(gvl, keys.request_path.get(), path);
        env.set(gvl, keys.uri.get(), RString::binary(gvl, own.uri).value());
        // Each request has its own query String, even if the query is empty, since an application may change it.
        env.set(gvl, keys.query.get(), RString::binary(gvl, own.query).value());
    }

    /// Returns a copy of the template with the request's fields.
    fn with_fields(&mut self, gvl: Gvl, request: &Request<'_>) -> (NewHash, Option<Upgrade>) {
        let lines = request.field_lines();
        // A host in the request's target takes precedence over the field `Host`.
        let is_plain = request.target().starts_with(b"/");
        if !is_plain || lines.is_empty() || lines.len() > MEMO_BYTES_MAX {
            return (self.fill_template(gvl, request).0, Upgrade::of(request));
        }
        let hash = hash_of(lines);
        // The remainder is below MEMOS_MAX.
        let place = usize::try_from(hash % MEMOS_MAX as u64).unwrap_or(0);
        let memo = &self.memos[place];
        if memo.hash != hash {
            self.memos[place] = Memo { hash, ..Memo::default() };
            return (self.fill_template(gvl, request).0, Upgrade::of(request));
        }
        match &memo.kept {
            Some(kept) if memo.lines == lines => (kept.copy(gvl), kept.upgrade),
            Some(_) => (self.fill_template(gvl, request).0, Upgrade::of(request)),
            None => {
                let (env, fields) = self.fill_template(gvl, request);
                let keep = |string| self.roots.keep(gvl, string);
                let fields = fields.iter().map(|(key, value)| (keep(*key), keep(*value))).collect();
                let upgrade = Upgrade::of(request);
                let kept =
                    KeptEnvironment { env: self.roots.keep(gvl, env.into_hash()), fields, upgrade };
                let copy = (kept.copy(gvl), upgrade);
                self.memos[place] = Memo { hash, lines: lines.to_vec(), kept: Some(kept) };
                copy
            }
        }
    }

    /// Returns a copy of the template with every field of the request, and those fields.
    fn fill_template(
        &mut self,
        gvl: Gvl,
        request: &Request<'_>,
    ) -> (NewHash, Vec<(RString, RString)>) {
        let mut env = NewHash::copy_of(gvl, self.template.get());
        let mut fields = Vec::with_capacity(request.fields().len());
        for (name, value) in request.fields() {
            // The body is no longer framed. Names with underscores could be mistaken for names with dashes; nginx
            // drops them, too.
            if name.contains(&b'_') || name.eq_ignore_ascii_case(b"transfer-encoding") {
                continue;
            }
            let key = self.key(gvl, name);
            let value = match fields.iter().find(|(other, _)| *other == key) {
                Some((_, before)) => joined(gvl, name, *before, value),
                None => RString::binary(gvl, value),
            };
            fields.retain(|(other, _)| *other != key);
            fields.push((key, value));
            env.set(gvl, key, value.value());
        }
        self.set_host(gvl, &mut env, request);
        (env, fields)
    }

    fn set_host(&self, gvl: Gvl, env: &mut NewHash, request: &Request<'_>) {
        let Some(host) = request.host() else { return };
        let port = port_of(host);
        let name = &host[..host.len() - port.len()];
        let name = name.strip_suffix(b":").unwrap_or(name);
        let port = if port.is_empty() { &b"80"[..] } else { port };
        env.set(gvl, self.keys.server_name.get(), RString::interned_bytes(gvl, name).value());
        env.set(gvl, self.keys.server_port.get(), RString::interned_bytes(gvl, port).value());
        if !request.target().starts_with(b"/") {
            let key = RString::interned_bytes(gvl, b"HTTP_HOST");
            env.set(gvl, key, RString::binary(gvl, host).value());
        }
    }

    /// The environment's key for a field name.
    fn key(&mut self, gvl: Gvl, name: &[u8]) -> RString {
        if name.eq_ignore_ascii_case(b"content-length") {
            return self.keys.content_length.get();
        }
        if name.eq_ignore_ascii_case(b"content-type") {
            return self.keys.content_type.get();
        }
        let capital = |byte: &u8| if *byte == b'-' { b'_' } else { byte.to_ascii_uppercase() };
        let mut key = b"HTTP_".to_vec();
        key.extend(name.iter().map(capital));
        if let Some(root) = self.names.get(&key) {
            return root.get();
        }
        let value = RString::interned_bytes(gvl, &key);
        if self.names.len() < KEYS_MAX {
            let root = self.roots.keep(gvl, value);
            self.names.insert(key, root);
        }
        value
    }

    fn remote(&mut self, gvl: Gvl, address: IpAddr) -> RString {
        match &self.peers {
            Some((known, root)) if *known == address => root.get(),
            _ => {
                let root = self
                    .roots
                    .keep(gvl, RString::interned_bytes(gvl, address.to_string().as_bytes()));
                let value = root.get();
                self.peers = Some((address, root));
                value
            }
        }
    }
}

impl KeptEnvironment {
    /// Copies the environment, with a copy of each field's value.
    fn copy(&self, gvl: Gvl) -> NewHash {
        let mut env = NewHash::copy_of(gvl, self.env.get());
        for (key, value) in &self.fields {
            env.set(gvl, key.get(), value.get().dup(gvl).value());
        }
        env
    }
}

impl Keys {
    fn new(gvl: Gvl, roots: &Arc<Roots>) -> Self {
        let keep = |text: &str| roots.keep(gvl, RString::interned_bytes(gvl, text.as_bytes()));
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
            may_hijack: keep("rack.hijack?"),
            empty: keep(""),
            get: keep("GET"),
            http_10: keep("HTTP/1.0"),
            http_2: keep("HTTP/2"),
            scheme: keep("rack.url_scheme"),
            upgrades: keep("rack.upgrade?"),
            upgrade: keep("rack.upgrade"),
            https: keep("https"),
            https_port: keep("443"),
            is_https: keep("HTTPS"),
            on: keep("on"),
        }
    }

    fn in_every_environment(&self) -> [RString; 9] {
        [
            self.method.get(),
            self.path.get(),
            self.query.get(),
            self.uri.get(),
            self.request_path.get(),
            self.remote.get(),
            self.after_reply.get(),
            self.finished.get(),
            self.hijack.get(),
        ]
    }
}

/// Hashes field lines, at the price of one multiplication for eight bytes. Lines with equal hashes are compared.
fn hash_of(lines: &[u8]) -> u64 {
    const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
    let mix = |hash: u64, word: u64| (hash.rotate_left(5) ^ word).wrapping_mul(ODD);
    let (words, rest) = lines.as_chunks();
    let hash = words.iter().fold(0, |hash, word| mix(hash, u64::from_le_bytes(*word)));
    let hash = rest.iter().fold(hash, |hash, byte| mix(hash, u64::from(*byte)));
    // The low bits select the memo. This makes them depend on all others.
    hash ^ hash >> 32
}

/// The port of a host, such as `80` of `[::1]:80`.
fn port_of(host: &[u8]) -> &[u8] {
    let from = host.iter().position(|byte| *byte == b']').unwrap_or(0);
    let colon = host[from..].iter().position(|byte| *byte == b':').map(|at| from + at);
    colon.map_or(&b""[..], |colon| &host[colon + 1..])
}

/// The joint value of a field that occurs twice.
fn joined(gvl: Gvl, name: &[u8], before: RString, value: &[u8]) -> RString {
    let between: &[u8] = if name.eq_ignore_ascii_case(b"cookie") { b"; " } else { b", " };
    let joined = before.read(gvl, |before| [before, between, value].concat());
    RString::binary(gvl, &joined)
}
