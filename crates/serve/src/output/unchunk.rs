//! Decodes responses that the application has written in chunks. If such bytes were sent unchanged, the author of the
//! body could write the connection's next response, too.

use thruway_http1::{BodyDecoder, Limits, Piece, RequestFraming};

/// A body that is not chunked, or that continues after the last chunk.
#[derive(Debug)]
pub(crate) struct NotInChunks;

/// Whether `pieces` are one whole chunked body.
pub fn are_chunks<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> bool {
    let Some(mut unchunk) = Unchunk::new() else { return false };
    let are_right = pieces.into_iter().all(|piece| unchunk.take(piece).is_ok());
    are_right && unchunk.is_whole
}

/// A decoder for one response.
#[derive(Debug)]
pub(crate) struct Unchunk {
    decoder: BodyDecoder,
    limits: Limits,
    /// Whether the last chunk has arrived.
    pub(crate) is_whole: bool,
}

impl Unchunk {
    pub(crate) fn new() -> Option<Self> {
        // The application's own framing has no limits.
        let limits = Limits {
            body_bytes_max: u64::MAX,
            chunk_extension_bytes_max: usize::MAX,
            trailer_bytes_max: usize::MAX,
            ..Limits::default()
        };
        let decoder = BodyDecoder::new(RequestFraming::Chunked, &limits).ok()?;
        Some(Self { decoder, limits, is_whole: false })
    }

    /// Decodes the next piece of the response.
    ///
    /// # Errors
    /// The piece is not chunked.
    pub(crate) fn take(&mut self, mut piece: &[u8]) -> Result<Vec<u8>, NotInChunks> {
        let mut body = Vec::with_capacity(piece.len());
        while !self.is_whole {
            let (used, found) = self.decoder.next(piece, &self.limits).map_err(|_| NotInChunks)?;
            piece = &piece[used..];
            match found {
                Piece::Data(data) => body.extend_from_slice(data),
                Piece::More => return Ok(body),
                Piece::End => self.is_whole = true,
            }
        }
        if piece.is_empty() { Ok(body) } else { Err(NotInChunks) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_whole_row_of_chunks_is_a_body_in_chunks() {
        for whole in
            [&[&b"0\r\n\r\n"[..]][..], &[b"3;a=b\r", b"", b"\none\r\n0\r", b"\nx: y\r\n\r\n"]]
        {
            assert!(are_chunks(whole.iter().copied()), "{whole:?}");
        }
        for wrong in [
            &[][..],
            &[&b"plain"[..]],
            &[b"3\r\none\r\n"],
            &[b"3\r\none\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"],
            &[b"0\r\n\r\n", b"x"],
            &[b"4\r\none\r\n0\r\n\r\n"],
        ] {
            assert!(!are_chunks(wrong.iter().copied()), "{wrong:?}");
        }
    }
}
