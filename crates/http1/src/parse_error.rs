//! The reasons for refusing a request: an error for each rule, with the status of the response.

use std::fmt;

/// A rule that a request violates. The end of such a request is uncertain, so the connection closes after the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ParseError {
    /// The connection does not start with a head of the PROXY protocol, although it must.
    ProxyHead,
    /// The first line is not `METHOD target HTTP/x.y`.
    RequestLine,
    /// A method with other characters than capital letters, `-` and `_`.
    Method,
    /// `CONNECT` and `TRACE`, which no origin should serve.
    ForbiddenMethod,
    /// A target that is neither a path, nor a URL of http, nor `*` for `OPTIONS`.
    Target,
    /// A path with a broken escape, with `%00`, or with `..` at a point where it would leave the root.
    Path,
    /// A version that is not written `HTTP/x.y`.
    Version,
    /// A version of HTTP other than 1.x.
    UnsupportedVersion,
    /// A line that ends in LF without CR, or a CR without LF.
    LineEnd,
    /// A field's name with other characters than a token's, or a space before the colon.
    FieldName,
    /// A field's value with a control character, NUL and bare CR included.
    FieldValue,
    /// Two lines of a field that may have only one.
    DuplicateField,
    /// Two fields, or a field and a framing field, whose names differ only by `_` and `-`.
    CollidingNames,
    /// HTTP/1.1 without `Host`.
    MissingHost,
    /// A host that is no name or address with an optional port.
    Host,
    /// A `Content-Length` that is not a row of digits, or is too large to count.
    ContentLength,
    /// `Transfer-Encoding` beside `Content-Length`, or in HTTP/1.0.
    AmbiguousLength,
    /// A `Transfer-Encoding` other than `chunked`.
    TransferCoding,
    /// An `Expect` other than `100-continue`.
    Expectation,
    /// A key of a WebSocket's handshake that is no base64 of 16 bytes, or stands twice.
    WebSocketKey,
    /// A request line beyond `request_line_bytes_max`.
    RequestLineTooLong,
    /// A head beyond `head_bytes_max`.
    HeadTooLarge,
    /// More than `fields_max` fields.
    TooManyFields,
    /// A body beyond `body_bytes_max`.
    BodyTooLarge,
    /// A chunk's size that is not a row of hexadecimal digits, or is too large to count.
    ChunkSize,
    /// A chunk extension with a control character.
    ChunkExtension,
    /// Chunk extensions beyond `chunk_extension_bytes_max`.
    ChunkExtensionsTooLong,
    /// A chunk whose bytes are not followed by CR LF.
    ChunkEnd,
    /// A trailer that is not made of fields.
    Trailer,
    /// A trailer beyond `trailer_bytes_max`.
    TrailerTooLarge,
}

impl ParseError {
    /// Returns the status of the response.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::ForbiddenMethod => 405,
            Self::BodyTooLarge => 413,
            Self::RequestLineTooLong => 414,
            Self::Expectation => 417,
            Self::HeadTooLarge | Self::TooManyFields | Self::TrailerTooLarge => 431,
            Self::TransferCoding => 501,
            Self::UnsupportedVersion => 505,
            _ => 400,
        }
    }

    /// Describes the error in a single lower-case line.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::ProxyHead => "the connection does not begin with a PROXY head",
            Self::RequestLine => "the request line is not METHOD target HTTP/x.y",
            Self::Method => "the method is not made of capital letters",
            Self::ForbiddenMethod => "this method is not served",
            Self::Target => "the target is neither a path nor a URL",
            Self::Path => "the path has a broken escape or leads above the root",
            Self::Version => "the version is not written HTTP/x.y",
            Self::UnsupportedVersion => "only HTTP/1 is spoken here",
            Self::LineEnd => "a line does not end in CR LF",
            Self::FieldName => "a field's name is not a token",
            Self::FieldValue => "a field's value has a control character",
            Self::DuplicateField => "a field that may stand once stands twice",
            Self::CollidingNames => "two fields differ only by _ and -",
            Self::MissingHost => "there is no Host",
            Self::Host => "the host is not a name or address with an optional port",
            Self::ContentLength => "the Content-Length is not a number",
            Self::AmbiguousLength => "the body's length is told in two ways",
            Self::TransferCoding => "the only transfer coding spoken here is chunked",
            Self::Expectation => "the only expectation met here is 100-continue",
            Self::WebSocketKey => "the key of the WebSocket is not 16 bytes as base64, once",
            Self::RequestLineTooLong => "the request line is too long",
            Self::HeadTooLarge => "the head is too large",
            Self::TooManyFields => "there are too many fields",
            Self::BodyTooLarge => "the body is too large",
            Self::ChunkSize => "a chunk's size is not a hexadecimal number",
            Self::ChunkExtension => "a chunk extension has a control character",
            Self::ChunkExtensionsTooLong => "the chunk extensions are too long",
            Self::ChunkEnd => "a chunk is not followed by CR LF",
            Self::Trailer => "the trailer is not made of fields",
            Self::TrailerTooLarge => "the trailer is too large",
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.text())
    }
}

impl std::error::Error for ParseError {}
