//! A parsed request: its head, combined with the bytes from which the head was parsed.

use crate::body::RequestFraming;
use crate::field::KnownField;
use crate::head::{Head, Span, Version};

/// A head and its bytes.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    head: &'a Head,
    bytes: &'a [u8],
}

impl Head {
    /// Combines the head with the bytes from which it was parsed.
    #[must_use]
    pub fn request<'a>(&'a self, bytes: &'a [u8]) -> Request<'a> {
        Request { head: self, bytes }
    }
}

impl<'a> Request<'a> {
    /// Returns the method, such as `GET` or `POST`.
    #[must_use]
    pub fn method(&self) -> &'a [u8] {
        self.part(self.head.method)
    }

    /// Whether the request is a HEAD request, whose response has no body.
    #[must_use]
    pub fn is_head(&self) -> bool {
        self.method() == b"HEAD"
    }

    /// Returns the target as received.
    #[must_use]
    pub fn target(&self) -> &'a [u8] {
        self.part(self.head.target)
    }

    /// Returns the target's path with its percent-escapes; `/` if a URL has no path, and `*` for `OPTIONS *`.
    #[must_use]
    pub fn path(&self) -> &'a [u8] {
        match self.part(self.head.path) {
            b"" => b"/",
            path => path,
        }
    }

    /// Returns the part of the target after the first `?`.
    #[must_use]
    pub fn query(&self) -> Option<&'a [u8]> {
        self.head.query.map(|span| self.part(span))
    }

    /// Returns the requested host with its port, from the target or from `Host`.
    #[must_use]
    pub fn host(&self) -> Option<&'a [u8]> {
        self.head.host.map(|span| self.part(span))
    }

    /// Returns the HTTP version of the request.
    #[must_use]
    pub fn version(&self) -> Version {
        self.head.version
    }

    /// Returns the value of the first field with this name.
    #[must_use]
    pub fn known(&self, known: KnownField) -> Option<&'a [u8]> {
        self.head.known.of(known).map(|place| self.part(self.head.fields[place].1))
    }

    /// Returns all fields in order: the name as received, and the value without surrounding white space.
    pub fn fields(&self) -> impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])> + Clone + use<'a> {
        let request = *self;
        let fields = self.head.fields.iter();
        fields.map(move |(name, value)| (request.part(*name), request.part(*value)))
    }

    /// Returns the lines of all fields and the empty line, byte for byte. Equal lines mean equal fields.
    #[must_use]
    pub fn field_lines(&self) -> &'a [u8] {
        match self.head.fields.first() {
            Some((name, _)) => &self.bytes[name.range().start..self.head.length],
            None => b"",
        }
    }

    /// Returns the way in which the body's end is marked.
    #[must_use]
    pub fn framing(&self) -> RequestFraming {
        self.head.framing
    }

    /// Whether a body follows the head.
    #[must_use]
    pub fn has_body(&self) -> bool {
        !matches!(self.framing(), RequestFraming::None | RequestFraming::Length(0))
    }

    /// Whether the client wants the connection to stay open.
    #[must_use]
    pub fn is_persistent(&self) -> bool {
        self.head.is_persistent
    }

    /// Whether the client waits for `100 Continue` before it sends the body.
    #[must_use]
    pub fn expects_continue(&self) -> bool {
        self.head.expects_continue
    }

    fn part(&self, span: Span) -> &'a [u8] {
        &self.bytes[span.range()]
    }
}
