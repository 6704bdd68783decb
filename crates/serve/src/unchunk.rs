//! Decodes responses that the application has written in chunks, for clients of HTTP/1.0 and HTTP/2.

use thruway_http1::{BodyDecoder, Limits, ParseError, Piece, RequestFraming};

/// A decoder for one response.
#[derive(Debug)]
pub(crate) struct Unchunk {
    decoder: BodyDecoder,
    limits: Limits,
    /// Whether the last chunk was there.
    pub(crate) is_whole: bool,
}

impl Unchunk {
    pub(crate) fn new() -> Option<Self> {
        // The application's own chunks may be as many as it likes.
        let limits = Limits {
            body_bytes_max: u64::MAX,
            chunk_extension_bytes_max: usize::MAX,
            trailer_bytes_max: usize::MAX,
            ..Limits::default()
        };
        let decoder = BodyDecoder::new(RequestFraming::Chunked, &limits).ok()?;
        Some(Self { decoder, limits, is_whole: false })
    }

    /// The bytes of the body in the next piece of the response.
    ///
    /// # Errors
    /// It is not made of chunks.
    pub(crate) fn take(&mut self, mut piece: &[u8]) -> Result<Vec<u8>, ParseError> {
        let mut body = Vec::with_capacity(piece.len());
        loop {
            let (used, found) = self.decoder.next(piece, &self.limits)?;
            piece = &piece[used..];
            match found {
                Piece::Data(data) => body.extend_from_slice(data),
                Piece::More => return Ok(body),
                Piece::End => {
                    self.is_whole = true;
                    return Ok(body);
                }
            }
        }
    }
}
