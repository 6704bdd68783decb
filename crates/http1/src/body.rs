//! Finds the end of a request's body, and removes the framing of its bytes.

use crate::limits::Limits;
use crate::parse_error::ParseError;
use crate::token;

/// The way in which the end of a request's body is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestFraming {
    /// The request has no body.
    None,
    /// By the length of the body in bytes.
    Length(u64),
    /// By a final chunk of length zero.
    Chunked,
}

/// The result of a decoding step.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Bytes of the body.
    Data(&'a [u8]),
    /// More input is needed.
    More,
    /// The body and its trailer are complete.
    End,
}

/// Removes the framing of a body, piece by piece. Trailer fields are checked and dropped.
#[derive(Debug, Clone)]
pub struct BodyDecoder {
    state: State,
    /// The number of missing bytes of the body or of the current chunk.
    left: u64,
    body_bytes: u64,
    extension_bytes: usize,
    trailer_bytes: usize,
}

/// The part of the framing to which the next byte belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Plain,
    /// A chunk's size. `any` says whether it has a digit yet.
    Size {
        any: bool,
    },
    /// White space before an extension.
    SizeSpace,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// The start of a line, which is a trailer field or the final empty line.
    LineStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    EndLf,
    Done,
}

impl BodyDecoder {
    /// Creates a decoder for a body with `framing`.
    ///
    /// # Errors
    /// [`ParseError::BodyTooLarge`] if the announced length exceeds the limit.
    pub fn new(framing: RequestFraming, limits: &Limits) -> Result<Self, ParseError> {
        let (state, left) = match framing {
            RequestFraming::None | RequestFraming::Length(0) => (State::Done, 0),
            RequestFraming::Length(length) => (State::Plain, length),
            RequestFraming::Chunked => (State::Size { any: false }, 0),
        };
        if left > limits.body_bytes_max {
            return Err(ParseError::BodyTooLarge);
        }
        Ok(Self { state, left, body_bytes: left, extension_bytes: 0, trailer_bytes: 0 })
    }

    /// Whether the body and its trailer are complete.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Decodes the next piece of `input`, and returns the number of consumed bytes.
    ///
    /// # Errors
    /// The first rule that the framing violates.
    pub fn next<'a>(
        &mut self,
        input: &'a [u8],
        limits: &Limits,
    ) -> Result<(usize, Piece<'a>), ParseError> {
        let mut used = 0;
        loop {
            match (self.state, input.get(used)) {
                (State::Done, _) => return Ok((used, Piece::End)),
                (_, None) => return Ok((used, Piece::More)),
                (State::Plain | State::Data, Some(_)) => {
                    let data = self.data(&input[used..]);
                    return Ok((used + data.len(), Piece::Data(data)));
                }
                (_, Some(byte)) => {
                    self.state = self.control(*byte, limits)?;
                    used += 1;
                }
            }
        }
    }

    /// Returns the bytes at the start of `input` that belong to the body or to the current chunk.
    fn data<'a>(&mut self, input: &'a [u8]) -> &'a [u8] {
        let length = usize::try_from(self.left).map_or(input.len(), |left| left.min(input.len()));
        self.left -= length as u64;
        if self.left == 0 {
            self.state = if self.state == State::Plain { State::Done } else { State::DataCr };
        }
        &input[..length]
    }

    /// Processes a byte of the framing, and returns the next state.
    fn control(&mut self, byte: u8, limits: &Limits) -> Result<State, ParseError> {
        match (self.state, byte) {
            (State::Size { any }, byte) if byte.is_ascii_hexdigit() => {
                self.size_digit(byte, any, limits)
            }
            (State::Size { any: true } | State::SizeSpace, b';') => Ok(State::Extension),
            // White space before an extension is invalid, but must be accepted (RFC 9112, section 7.1.1).
            (State::Size { any: true } | State::SizeSpace, b' ' | b'\t') => {
                self.extension(byte, limits).map(|_| State::SizeSpace)
            }
            (State::Size { any: true } | State::Extension, b'\r') => Ok(State::SizeLf),
            (State::Extension, byte) => self.extension(byte, limits),
            (State::SizeLf, b'\n') => self.chunk(limits),
            (State::DataCr, b'\r') => Ok(State::DataLf),
            (State::DataLf, b'\n') => Ok(State::Size { any: false }),
            (State::DataCr | State::DataLf, _) => Err(ParseError::ChunkEnd),
            (State::Size { .. } | State::SizeSpace | State::SizeLf, _) => {
                Err(ParseError::ChunkSize)
            }
            _ => self.trailer(byte, limits),
        }
    }

    /// Adds a digit to a chunk's size. Leading zeros have no meaning, so they count as bytes of an extension, whose
    /// number is limited.
    fn size_digit(&mut self, byte: u8, any: bool, limits: &Limits) -> Result<State, ParseError> {
        if any && self.left == 0 {
            self.extension(byte, limits)?;
        }
        let value = char::from(byte).to_digit(16).ok_or(ParseError::ChunkSize)?;
        let size = self.left.checked_mul(16).ok_or(ParseError::ChunkSize)?;
        self.left = size + u64::from(value);
        Ok(State::Size { any: true })
    }

    fn extension(&mut self, byte: u8, limits: &Limits) -> Result<State, ParseError> {
        if !token::is_value(byte) {
            return Err(ParseError::ChunkExtension);
        }
        self.extension_bytes += 1;
        if self.extension_bytes > limits.chunk_extension_bytes_max {
            return Err(ParseError::ChunkExtensionsTooLong);
        }
        Ok(State::Extension)
    }

    /// Continues after a chunk's size, with the chunk's bytes or with the trailer.
    fn chunk(&mut self, limits: &Limits) -> Result<State, ParseError> {
        if self.left == 0 {
            return Ok(State::LineStart);
        }
        self.body_bytes = self.body_bytes.checked_add(self.left).ok_or(ParseError::ChunkSize)?;
        if self.body_bytes > limits.body_bytes_max {
            return Err(ParseError::BodyTooLarge);
        }
        Ok(State::Data)
    }

    fn trailer(&mut self, byte: u8, limits: &Limits) -> Result<State, ParseError> {
        self.trailer_bytes += 1;
        if self.trailer_bytes > limits.trailer_bytes_max {
            return Err(ParseError::TrailerTooLarge);
        }
        match (self.state, byte) {
            (State::LineStart, b'\r') => Ok(State::EndLf),
            (State::LineStart | State::TrailerName, byte) if token::is_token(byte) => {
                Ok(State::TrailerName)
            }
            (State::TrailerName, b':') => Ok(State::TrailerValue),
            (State::TrailerValue, byte) if token::is_value(byte) => Ok(State::TrailerValue),
            (State::TrailerValue, b'\r') => Ok(State::TrailerLf),
            (State::TrailerLf, b'\n') => Ok(State::LineStart),
            (State::EndLf, b'\n') => Ok(State::Done),
            _ => Err(ParseError::Trailer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use thruway_testing::table::{pairs, unescape};

    /// Decodes `input` in pieces of `step` bytes. Returns the body and the remaining bytes.
    fn decode(input: &[u8], step: usize, limits: &Limits) -> Result<(Vec<u8>, usize), ParseError> {
        let mut decoder = BodyDecoder::new(RequestFraming::Chunked, limits)?;
        let (mut body, mut at) = (Vec::new(), 0);
        while !decoder.is_done() && at < input.len() {
            let end = input.len().min(at + step);
            let (used, piece) = decoder.next(&input[at..end], limits)?;
            at += used;
            if let Piece::Data(data) = piece {
                body.extend_from_slice(data);
            }
        }
        if decoder.is_done() { Ok((body, at)) } else { Ok((b"(more)".to_vec(), at)) }
    }

    fn small() -> Limits {
        Limits {
            body_bytes_max: 1000,
            chunk_extension_bytes_max: 20,
            trailer_bytes_max: 40,
            ..Limits::default()
        }
    }

    /// Columns of `tests/vectors/chunked_body.tsv`: the bytes, then `ok BODY`, `more` or the error's name.
    #[test]
    fn every_vector_gives_its_body_or_its_refusal() {
        let rows = pairs(include_str!("../tests/vectors/chunked_body.tsv"));
        assert!(rows.len() > 30, "the vectors are there");
        for (bytes, expected) in rows {
            for step in [1, 2, 7, 4096] {
                let got = match decode(&unescape(bytes), step, &small()) {
                    Ok((body, _)) if body == b"(more)" => "more".to_owned(),
                    Ok((body, _)) => format!("ok {}", String::from_utf8_lossy(&body)),
                    Err(parse_error) => format!("{parse_error:?} {}", parse_error.status()),
                };
                assert_eq!(got.trim_end(), expected, "{bytes} by {step}");
            }
        }
    }

    #[test]
    fn a_length_ends_the_body_and_leaves_the_next_request() {
        let limits = Limits::default();
        let mut decoder = BodyDecoder::new(RequestFraming::Length(5), &limits).unwrap();
        assert_eq!(decoder.next(b"the", &limits), Ok((3, Piece::Data(b"the"))));
        assert_eq!(decoder.next(b"", &limits), Ok((0, Piece::More)));
        assert_eq!(decoder.next(b"reGET /", &limits), Ok((2, Piece::Data(b"re"))));
        assert_eq!(decoder.next(b"GET /", &limits), Ok((0, Piece::End)));
    }

    #[test]
    fn no_body_is_done_at_once_and_a_long_one_is_refused_at_once() {
        let limits = small();
        assert!(BodyDecoder::new(RequestFraming::None, &limits).unwrap().is_done());
        assert!(BodyDecoder::new(RequestFraming::Length(0), &limits).unwrap().is_done());
        let long = BodyDecoder::new(RequestFraming::Length(1001), &limits);
        assert_eq!(long.unwrap_err(), ParseError::BodyTooLarge);
    }

    proptest! {
        #[test]
        fn chunks_decode_to_their_bytes_however_they_arrive(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..8),
            step in 1_usize..50,
        ) {
            let mut wire = Vec::new();
            for chunk in &chunks {
                wire.extend_from_slice(format!("{:x};a=b\r\n", chunk.len()).as_bytes());
                wire.extend_from_slice(chunk);
                wire.extend_from_slice(b"\r\n");
            }
            wire.extend_from_slice(b"0\r\nX-Sum: 1\r\n\r\n");
            let length = wire.len();
            wire.extend_from_slice(b"GET / HTTP/1.1\r\n");
            let limits = Limits { chunk_extension_bytes_max: 100, ..Limits::default() };
            prop_assert_eq!(decode(&wire, step, &limits), Ok((chunks.concat(), length)));
        }

        #[test]
        fn no_bytes_make_it_panic(wire in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&wire, 3, &small());
        }
    }
}
