//! Chunked bodies (RFC 9112, section 7.1): sizes, data, trailers.

use super::MalformedResponse;

/// The longest size or trailer line, in bytes.
const LINE_BYTES_MAX: usize = 8 * 1024;

/// The position of a reader in a chunked body.
#[derive(Debug, Default)]
pub(super) struct ChunkedReader {
    part: Part,
    /// The value of the size line so far.
    size: u64,
    /// The bytes of the current line so far, without its end.
    line_bytes: usize,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Part {
    #[default]
    Size,
    Extension,
    Data,
    DataEnd,
    Trailer,
}

impl ChunkedReader {
    /// Reads up to the end of the body, or all bytes. Returns whether the body ended.
    pub(super) fn read(&mut self, bytes: &mut &[u8]) -> Result<bool, MalformedResponse> {
        while let Some((byte, rest)) = bytes.split_first() {
            if self.part == Part::Data {
                skip(bytes, &mut self.size);
                if self.size == 0 {
                    self.start(Part::DataEnd);
                }
                continue;
            }
            *bytes = rest;
            if self.read_byte(*byte)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn read_byte(&mut self, byte: u8) -> Result<bool, MalformedResponse> {
        if byte == b'\n' {
            return self.end_line();
        }
        if byte == b'\r' {
            return Ok(false);
        }
        self.line_bytes += 1;
        match (self.part, char::from(byte).to_digit(16)) {
            _ if self.line_bytes > LINE_BYTES_MAX => return Err(MalformedResponse),
            (Part::Size, Some(digit)) => self.add_digit(digit)?,
            (Part::Size, None) if self.line_bytes > 1 && matches!(byte, b';' | b' ') => {
                self.part = Part::Extension;
            }
            (Part::Extension | Part::Trailer, _) => {}
            _ => return Err(MalformedResponse),
        }
        Ok(false)
    }

    fn end_line(&mut self) -> Result<bool, MalformedResponse> {
        let is_empty = self.line_bytes == 0;
        match self.part {
            Part::Size if is_empty => return Err(MalformedResponse),
            Part::Size | Part::Extension if self.size > 0 => self.part = Part::Data,
            Part::Size | Part::Extension => self.start(Part::Trailer),
            Part::Trailer if is_empty => return Ok(true),
            Part::Trailer => self.start(Part::Trailer),
            Part::Data | Part::DataEnd => self.start(Part::Size),
        }
        Ok(false)
    }

    fn start(&mut self, part: Part) {
        *self = Self { part, size: 0, line_bytes: 0 };
    }

    fn add_digit(&mut self, digit: u32) -> Result<(), MalformedResponse> {
        let size = self.size.checked_mul(16).ok_or(MalformedResponse)?;
        self.size = size + u64::from(digit);
        Ok(())
    }
}

/// Skips up to `left` bytes.
pub(super) fn skip(bytes: &mut &[u8], left: &mut u64) {
    let here = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
    *bytes = &bytes[here..];
    *left -= here as u64;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(mut bytes: &[u8]) -> Result<(bool, usize), MalformedResponse> {
        let ended = ChunkedReader::default().read(&mut bytes)?;
        Ok((ended, bytes.len()))
    }

    #[test]
    fn the_last_chunk_and_its_trailers_end_the_body() {
        assert_eq!(read(b"0\r\n\r\nnext"), Ok((true, 4)));
        assert_eq!(read(b"A\r\n0123456789\r\n0\r\nA: b\r\nC: d\r\n\r\n"), Ok((true, 0)));
        assert_eq!(read(b"1;name=\"value\"\r\nx\r\n0\r\n\r\n"), Ok((true, 0)));
        assert_eq!(read(b"1\r\nx\r\n0\r\n"), Ok((false, 0)));
    }

    #[test]
    fn sizes_that_are_none_are_refused() {
        for bytes in ["\r\n", "x\r\n", "-1\r\n", ";\r\n", "11111111111111111\r\n", "1\r\nxy\r\n"] {
            assert_eq!(read(bytes.as_bytes()), Err(MalformedResponse), "{bytes:?}");
        }
        assert_eq!(read(&[b'1'; 17]), Err(MalformedResponse));
        assert_eq!(
            read(&[[b'1', b';'].as_slice(), &[b'x'; LINE_BYTES_MAX]].concat()),
            Err(MalformedResponse)
        );
    }
}
