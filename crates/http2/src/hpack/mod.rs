//! Decodes a client's field blocks (RFC 7541) to inspect them, and encodes blocks without a table.

mod tables;

use std::collections::VecDeque;
use std::sync::LazyLock;

use tables::{CODE_BITS, STATIC};

/// The size of the dynamic table in bytes, initially and at most: the default of SETTINGS.
const TABLE_BYTES_MAX: usize = 4096;
/// The size of a table entry in addition to its name and value.
const ENTRY_BYTES: usize = 32;

/// The name and the value of a field.
pub(crate) type Field = (Vec<u8>, Vec<u8>);

/// The bytes are not a valid field block, so the connection cannot continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MalformedBlock;

/// Decodes blocks and maintains the client's dynamic table.
#[derive(Debug)]
pub(crate) struct Decoder {
    table: VecDeque<Field>,
    table_bytes: usize,
    table_bytes_max: usize,
}

/// The Huffman code, by the lengths of its words.
struct Code {
    /// The number of words of each length.
    counts: [u32; 31],
    /// The symbols, in the order of the lengths of their words.
    symbols: Vec<u16>,
}

static CODE: LazyLock<Code> = LazyLock::new(|| {
    let mut symbols: Vec<u16> = (0..257).collect();
    symbols.sort_by_key(|symbol| CODE_BITS[usize::from(*symbol)]);
    let mut counts = [0; 31];
    CODE_BITS.iter().for_each(|bits| counts[usize::from(*bits)] += 1);
    Code { counts, symbols }
});

impl Decoder {
    pub(crate) fn new() -> Self {
        Self { table: VecDeque::new(), table_bytes: 0, table_bytes_max: TABLE_BYTES_MAX }
    }

    /// Decodes a whole block. Fails if the fields exceed `bytes_max` bytes in total.
    pub(crate) fn fields(
        &mut self,
        mut block: &[u8],
        bytes_max: usize,
    ) -> Result<Vec<Field>, MalformedBlock> {
        let (mut fields, mut bytes) = (Vec::new(), 0);
        while let Some(first) = block.first() {
            let field = match first {
                0x80.. => {
                    let index = integer(&mut block, 7)?;
                    self.entry(index)?
                }
                0x40..0x80 => {
                    let field = self.literal(&mut block, 6)?;
                    self.keep(field.clone());
                    field
                }
                0x20..0x40 => {
                    self.table_bytes_max = integer(&mut block, 5)?;
                    if self.table_bytes_max > TABLE_BYTES_MAX {
                        return Err(MalformedBlock);
                    }
                    self.evict();
                    continue;
                }
                0..0x20 => self.literal(&mut block, 4)?,
            };
            bytes += field.0.len() + field.1.len() + ENTRY_BYTES;
            if bytes > bytes_max {
                return Err(MalformedBlock);
            }
            fields.push(field);
        }
        Ok(fields)
    }

    fn literal(&self, block: &mut &[u8], bits: u32) -> Result<Field, MalformedBlock> {
        let name = match integer(block, bits)? {
            0 => text(block)?,
            index => self.entry(index)?.0,
        };
        Ok((name, text(block)?))
    }

    fn entry(&self, index: usize) -> Result<Field, MalformedBlock> {
        let place = index.checked_sub(1).ok_or(MalformedBlock)?;
        match STATIC.get(place) {
            Some((name, value)) => Ok((name.as_bytes().to_vec(), value.as_bytes().to_vec())),
            None => self.table.get(place - STATIC.len()).cloned().ok_or(MalformedBlock),
        }
    }

    fn keep(&mut self, field: Field) {
        self.table_bytes += size(&field);
        self.table.push_front(field);
        self.evict();
    }

    fn evict(&mut self) {
        while self.table_bytes > self.table_bytes_max
            && let Some(field) = self.table.pop_back()
        {
            self.table_bytes -= size(&field);
        }
    }
}

fn text(block: &mut &[u8]) -> Result<Vec<u8>, MalformedBlock> {
    let is_coded = block.first().is_some_and(|first| first & 0x80 != 0);
    let length = integer(block, 7)?;
    let (text, rest) = block.split_at_checked(length).ok_or(MalformedBlock)?;
    *block = rest;
    if is_coded { decoded(text) } else { Ok(text.to_vec()) }
}

/// Decodes a text in the Huffman code of appendix B, bit by bit.
fn decoded(text: &[u8]) -> Result<Vec<u8>, MalformedBlock> {
    const END: u16 = 256;
    let Code { counts, symbols } = &*CODE;
    let mut decoded = Vec::with_capacity(text.len() * 2);
    // The current word, the first word of its length, the index of that word's symbol, and the length.
    let (mut word, mut first, mut place, mut bits) = (0_u32, 0_u32, 0_usize, 0_usize);
    let mut is_padding = true;
    for bit in text.iter().flat_map(|byte| (0..8).rev().map(move |at| byte >> at & 1)) {
        (word, bits) = (word << 1 | u32::from(bit), bits + 1);
        is_padding &= bit == 1;
        let count = *counts.get(bits).ok_or(MalformedBlock)?;
        if word - first < count {
            match symbols[place + (word - first) as usize] {
                END => return Err(MalformedBlock),
                symbol => decoded.push(symbol as u8),
            }
            (word, first, place, bits, is_padding) = (0, 0, 0, 0, true);
        } else {
            (place, first) = (place + count as usize, (first + count) << 1);
        }
    }
    if bits < 8 && is_padding { Ok(decoded) } else { Err(MalformedBlock) }
}

fn size((name, value): &Field) -> usize {
    name.len() + value.len() + ENTRY_BYTES
}

/// Decodes an integer whose first byte has a prefix of `bits` bits.
fn integer(block: &mut &[u8], bits: u32) -> Result<usize, MalformedBlock> {
    let (first, mut rest) = block.split_first().ok_or(MalformedBlock)?;
    let most = (1_usize << bits) - 1;
    let mut number = usize::from(*first) & most;
    if number == most {
        let mut shift = 0;
        loop {
            let (byte, after) = rest.split_first().ok_or(MalformedBlock)?;
            rest = after;
            number += usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
            if shift > 21 {
                return Err(MalformedBlock);
            }
        }
    }
    *block = rest;
    Ok(number)
}

/// Encodes fields without a table and without Huffman coding.
pub(crate) fn written(fields: &[Field]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        write_text(&mut block, name);
        write_text(&mut block, value);
    }
    block
}

fn write_text(block: &mut Vec<u8>, text: &[u8]) {
    const MOST: usize = 127;
    match text.len().checked_sub(MOST) {
        None => block.push(text.len() as u8),
        Some(mut rest) => {
            block.push(MOST as u8);
            while rest >= 0x80 {
                block.push(rest as u8 | 0x80);
                rest >>= 7;
            }
            block.push(rest as u8);
        }
    }
    block.extend_from_slice(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str, value: &str) -> Field {
        (name.into(), value.into())
    }

    fn bytes(hexadecimal: &str) -> Vec<u8> {
        let digits: Vec<_> = hexadecimal.bytes().filter(|byte| *byte != b' ').collect();
        let pair =
            |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(pair).collect()
    }

    /// The same requests without and with Huffman coding (RFC 7541, C.3 and C.4).
    #[test]
    fn the_examples_of_the_rfc_are_read() {
        let plain = [
            "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "8286 84be 5808 6e6f 2d63 6163 6865",
            "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
        ];
        let coded = [
            "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
            "8286 84be 5886 a8eb 1064 9cbf",
            "8287 85bf 4088 25a8 49e9 5b a9 7d7f 8925 a849 e95b b8e8 b4bf",
        ];
        let start = |scheme, path| {
            vec![
                field(":method", "GET"),
                field(":scheme", scheme),
                field(":path", path),
                field(":authority", "www.example.com"),
            ]
        };
        let mut expected = [start("http", "/"), start("http", "/"), start("https", "/index.html")];
        expected[1].push(field("cache-control", "no-cache"));
        expected[2].push(field("custom-key", "custom-value"));
        for blocks in [plain, coded] {
            let mut decoder = Decoder::new();
            for (block, expected) in blocks.iter().zip(&expected) {
                assert_eq!(decoder.fields(&bytes(block), 1 << 16).as_ref(), Ok(expected));
            }
        }
        let long = [
            field("a", &"x".repeat(126)),
            field("b", &"y".repeat(127)),
            field("c", &"z".repeat(9000)),
        ];
        assert_eq!(Decoder::new().fields(&written(&long), 1 << 16), Ok(long.to_vec()));
    }

    #[test]
    fn malformed_blocks_are_refused() {
        for block in ["80", "be", "40", "0001", "000161", "3fe21f", "00 82ff ff 00", "ffffffffff"] {
            assert_eq!(
                Decoder::new().fields(&bytes(block), 1 << 16),
                Err(MalformedBlock),
                "{block}"
            );
        }
    }
}
