//! Header fields of HTTP/2 (HPACK, RFC 7541), as far as a load generator needs them.
//!
//! Requests are encoded without Huffman coding and add nothing to the server's dynamic table, so each has the
//! same bytes. The client sets the size of its own dynamic table to 0, so each response block is independent.
//! Three of its fields are read: the status, the length, and whether there is a content coding.

/// The first indexes of `:status` and `content-length` in the static table (appendix A).
const STATUS: usize = 8;
const STATUSES: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
const CONTENT_LENGTH: usize = 28;
/// The index of `content-encoding`, by which servers name the field.
const CONTENT_ENCODING: usize = 26;
/// The size of the static table.
const STATIC_MAX: usize = 61;
/// Both names in Huffman code (appendix B), which a server may use as well.
const STATUS_CODED: [u8; 5] = [0xb8, 0x84, 0x8d, 0x36, 0xa3];
const CONTENT_LENGTH_CODED: [u8; 10] = [0x21, 0xea, 0x49, 0x6a, 0x4a, 0xd4, 0x16, 0xa9, 0x93, 0x3f];

/// The block is invalid, or refers to a dynamic table entry, of which there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MalformedBytes;

/// The fields of a response.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fields {
    /// `None` in trailers.
    pub(crate) status: Option<u16>,
    pub(crate) content_length: Option<u64>,
    /// Whether the body has a content coding.
    pub(crate) is_encoded: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    Status,
    ContentLength,
    ContentEncoding,
    Other,
}

/// Decodes a whole block.
pub(crate) fn read(block: &[u8]) -> Result<Fields, MalformedBytes> {
    let (mut fields, mut rest) = (Fields::default(), block);
    while let Some(first) = rest.first().copied() {
        match first {
            0x80.. => {
                let index = integer(&mut rest, 7)?;
                if !(1..=STATIC_MAX).contains(&index) {
                    return Err(MalformedBytes);
                }
                if let Some(status) = index.checked_sub(STATUS).and_then(|at| STATUSES.get(at)) {
                    set(&mut fields.status, *status)?;
                }
            }
            // A change of the table's size.
            0x20..0x40 => {
                integer(&mut rest, 5)?;
            }
            _ => read_literal(&mut rest, if first >= 0x40 { 6 } else { 4 }, &mut fields)?,
        }
    }
    Ok(fields)
}

fn read_literal(rest: &mut &[u8], bits: u32, fields: &mut Fields) -> Result<(), MalformedBytes> {
    let name = match integer(rest, bits)? {
        0 => name(text(rest)?),
        STATUS..15 => Name::Status,
        CONTENT_LENGTH => Name::ContentLength,
        CONTENT_ENCODING => Name::ContentEncoding,
        index if index <= STATIC_MAX => Name::Other,
        _ => return Err(MalformedBytes),
    };
    let value = text(rest)?;
    match name {
        Name::Status => set(
            &mut fields.status,
            number(value).and_then(|status| u16::try_from(status).ok()).ok_or(MalformedBytes)?,
        ),
        Name::ContentLength => {
            set(&mut fields.content_length, number(value).ok_or(MalformedBytes)?)
        }
        Name::ContentEncoding => {
            fields.is_encoded = value.0 != b"identity";
            Ok(())
        }
        Name::Other => Ok(()),
    }
}

/// A field that is repeated with another value is ambiguous.
fn set<T: PartialEq>(field: &mut Option<T>, value: T) -> Result<(), MalformedBytes> {
    let is_new = field.as_ref().is_none_or(|known| *known == value);
    *field = Some(value);
    is_new.then_some(()).ok_or(MalformedBytes)
}

/// Decodes an integer with a prefix of `bits` bits (section 5.1).
fn integer(rest: &mut &[u8], bits: u32) -> Result<usize, MalformedBytes> {
    let mask = (1_usize << bits) - 1;
    let (first, mut tail) = rest.split_first().ok_or(MalformedBytes)?;
    let mut value = usize::from(*first) & mask;
    if value == mask {
        for shift in (0..).step_by(7).take(4) {
            let (byte, after) = tail.split_first().ok_or(MalformedBytes)?;
            tail = after;
            value += (usize::from(*byte) & 0x7f) << shift;
            if *byte < 0x80 {
                *rest = tail;
                return Ok(value);
            }
        }
        return Err(MalformedBytes);
    }
    *rest = tail;
    Ok(value)
}

/// Decodes a string, and returns whether it is in Huffman code (section 5.2).
fn text<'a>(rest: &mut &'a [u8]) -> Result<(&'a [u8], bool), MalformedBytes> {
    let is_coded = rest.first().is_some_and(|first| *first >= 0x80);
    let length = integer(rest, 7)?;
    let (text, tail) = rest.split_at_checked(length).ok_or(MalformedBytes)?;
    *rest = tail;
    Ok((text, is_coded))
}

fn name((text, is_coded): (&[u8], bool)) -> Name {
    let is = |plain: &[u8], coded: &[u8]| text == if is_coded { coded } else { plain };
    if is(b":status", &STATUS_CODED) {
        Name::Status
    } else if is(b"content-length", &CONTENT_LENGTH_CODED) {
        Name::ContentLength
    } else {
        Name::Other
    }
}

/// Decodes a decimal number.
fn number((text, is_coded): (&[u8], bool)) -> Option<u64> {
    let digits = if is_coded { coded_digits(text)? } else { text.to_vec() };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(&digits).ok()?.parse().ok()
}

/// Decodes digits in Huffman code: 0 to 2 have five bits, the others six.
fn coded_digits(text: &[u8]) -> Option<Vec<u8>> {
    let bit = |at: usize| text.get(at / 8).map(|byte| u32::from(byte >> (7 - at % 8)) & 1);
    let bits =
        |at: usize, count: usize| (at..at + count).try_fold(0, |sum, at| Some(sum * 2 + bit(at)?));
    let (mut digits, mut at) = (Vec::new(), 0);
    loop {
        let left = text.len() * 8 - at;
        let is_padding = left < 8 && (at..text.len() * 8).all(|at| bit(at) == Some(1));
        if is_padding {
            return Some(digits);
        }
        let (digit, length) = match (bits(at, 5)?, bits(at, 6)) {
            (code @ 0..=2, _) => (code, 5),
            (_, Some(code @ 0x19..=0x1f)) => (code - 0x19 + 3, 6),
            _ => return None,
        };
        digits.push(b'0' + u8::try_from(digit).ok()?);
        at += length;
    }
}

/// Encodes a field without adding it to the server's table. The name must be in lower case.
pub(crate) fn write(block: &mut Vec<u8>, name: &str, value: &str) {
    block.push(0);
    write_text(block, name);
    write_text(block, value);
}

fn write_text(block: &mut Vec<u8>, text: &str) {
    let mask = 0x7f;
    if text.len() < mask {
        block.push(u8::try_from(text.len()).unwrap_or(0));
    } else {
        block.push(0x7f);
        let mut left = text.len() - mask;
        while left >= 0x80 {
            block.push(u8::try_from(left % 0x80).unwrap_or(0) | 0x80);
            left /= 0x80;
        }
        block.push(u8::try_from(left).unwrap_or(0));
    }
    block.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(status: u16, content_length: Option<u64>) -> Result<Fields, MalformedBytes> {
        Ok(Fields { status: Some(status), content_length, is_encoded: false })
    }

    /// RFC 7541, appendix C.5.1 and C.6.1: a status that is not in the static table, plain and in Huffman
    /// code.
    #[test]
    fn a_content_coding_is_noticed() {
        let read = |block: &[u8]| read(block).map(|fields| fields.is_encoded);
        assert_eq!(read(b"\x88\x5a\x04gzip"), Ok(true));
        assert_eq!(read(b"\x88\x5a\x08identity"), Ok(false));
    }

    #[test]
    fn a_status_is_read_plain_and_coded() {
        assert_eq!(read(b"\x48\x03302\x58\x07private"), fields(302, None));
        assert_eq!(read(b"\x48\x82\x64\x02\x58\x85\xae\xc3\x77\x1a\x4b"), fields(302, None));
        assert_eq!(read(b"\x88"), fields(200, None));
        assert_eq!(read(b"\x3f\xe1\x1f\x8d\x00\x07:status\x03404"), fields(404, None));
    }

    #[test]
    fn a_length_is_read_in_every_form() {
        let coded_name = [&b"\x88\x00\x8a"[..], &CONTENT_LENGTH_CODED, b"\x0242"].concat();
        assert_eq!(read(&coded_name), fields(200, Some(42)));
        let all_digits = b"\x88\x0f\x0d\x88\x08\x99\x69\xb7\x1d\x79\xf0\x7f";
        assert_eq!(read(all_digits), fields(200, Some(1_234_567_890)));
        assert_eq!(read(b"\x88\x5c\x010"), fields(200, Some(0)));
    }

    #[test]
    fn malformed_blocks_are_refused() {
        for block in [
            &b"\x80"[..],
            b"\xbe",
            b"\x7e\x01x",
            b"\x48\x03abc",
            b"\x48\x0330",
            b"\x88\x89",
            b"\x5c\x011\x5c\x012",
            b"\xff\xff\xff\xff\xff\xff",
            b"\x48\x82\x64\xfd",
            b"\x00",
        ] {
            assert_eq!(read(block), Err(MalformedBytes), "{block:?}");
        }
    }

    #[test]
    fn written_fields_are_read_back() {
        let long = "9".repeat(300);
        let mut block = Vec::new();
        write(&mut block, "x", &long);
        write(&mut block, ":status", "201");
        assert_eq!(read(&block), fields(201, None));
    }
}
