//! The content of a YAML or JSON file, as a sequence of tokens from which a program builds its objects.
//!
//! Each token starts with one byte for its type. Lengths and numbers follow in LEB128, seven bits per byte. A
//! list is its length followed by its elements, a map its length followed by keys and values in turn. An
//! object that occurs twice is written once; the second time, [`Token::Again`] refers to it by number. For
//! this purpose texts, lists, maps and dates are numbered from 0 in the order of their first byte.

/// A token of a document.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Token<'a> {
    /// `nil`.
    Nil,
    /// `true`.
    True,
    /// `false`.
    False,
    /// An integer.
    Integer(i64),
    /// A floating-point number.
    Float(f64),
    /// A mutable string.
    Text(&'a [u8]),
    /// A frozen string. Equal ones are one object, as Ruby deduplicates them.
    FrozenText(&'a [u8]),
    /// A symbol.
    Symbol(&'a [u8]),
    /// A date.
    Date {
        /// The Julian day number.
        day: i64,
        /// The Julian day number from which the Gregorian calendar applies.
        start: f64,
    },
    /// A list, followed by its elements.
    List {
        /// The number of elements.
        length: usize,
        /// Whether the list is frozen.
        is_frozen: bool,
    },
    /// A map, followed by its keys and values in turn.
    Map {
        /// The number of pairs.
        length: usize,
        /// Whether the map is frozen.
        is_frozen: bool,
    },
    /// The object with this number once more.
    Again(usize),
}

/// Encodes tokens.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

/// Decodes tokens; yields `None` at the end and at malformed bytes.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl Writer {
    /// Returns the encoded bytes.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Appends a token.
    pub fn put(&mut self, token: Token<'_>) {
        match token {
            Token::Nil => self.bytes.push(0),
            Token::True => self.bytes.push(1),
            Token::False => self.bytes.push(2),
            Token::Integer(number) => self.tagged(3, zigzag(number)),
            Token::Float(number) => self.float(4, number),
            Token::Text(text) => self.text(5, text),
            Token::FrozenText(text) => self.text(6, text),
            Token::Symbol(text) => self.text(7, text),
            Token::Date { day, start } => {
                self.float(8, start);
                self.number(zigzag(day));
            }
            Token::List { length, is_frozen } => {
                self.tagged(9 + u8::from(is_frozen), length as u64)
            }
            Token::Map { length, is_frozen } => {
                self.tagged(11 + u8::from(is_frozen), length as u64)
            }
            Token::Again(object) => self.tagged(13, object as u64),
        }
    }

    fn text(&mut self, tag: u8, text: &[u8]) {
        self.tagged(tag, text.len() as u64);
        self.bytes.extend_from_slice(text);
    }

    fn float(&mut self, tag: u8, number: f64) {
        self.bytes.push(tag);
        self.bytes.extend(number.to_bits().to_le_bytes());
    }

    fn tagged(&mut self, tag: u8, number: u64) {
        self.bytes.push(tag);
        self.number(number);
    }

    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }
}

impl<'a> Reader<'a> {
    /// Creates a reader of bytes that a [`Writer`] wrote.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Whether all bytes have been read.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    fn token(&mut self) -> Option<Token<'a>> {
        Some(match self.byte()? {
            0 => Token::Nil,
            1 => Token::True,
            2 => Token::False,
            3 => Token::Integer(unzigzag(self.number()?)),
            4 => Token::Float(self.float()?),
            5 => Token::Text(self.text()?),
            6 => Token::FrozenText(self.text()?),
            7 => Token::Symbol(self.text()?),
            8 => {
                let start = self.float()?;
                Token::Date { day: unzigzag(self.number()?), start }
            }
            tag @ 9..=10 => Token::List { length: self.length(1)?, is_frozen: tag == 10 },
            tag @ 11..=12 => Token::Map { length: self.length(2)?, is_frozen: tag == 12 },
            13 => Token::Again(usize::try_from(self.number()?).ok()?),
            _ => return None,
        })
    }

    /// Reads a length; `None` if the remaining bytes are too few for as many elements. The caller may
    /// therefore allocate that many.
    fn length(&mut self, bytes_each: usize) -> Option<usize> {
        let length = usize::try_from(self.number()?).ok()?;
        (length.checked_mul(bytes_each)? <= self.rest.len()).then_some(length)
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length = self.length(1)?;
        let (text, rest) = self.rest.split_at(length);
        self.rest = rest;
        Some(text)
    }

    fn float(&mut self) -> Option<f64> {
        let (bits, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(f64::from_bits(u64::from_le_bytes(*bits)))
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*byte)
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        let token = self.token();
        if token.is_none() {
            self.rest = &[];
        }
        token
    }
}

/// Maps integers of small magnitude to small unsigned numbers.
fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63).cast_unsigned()
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_token_is_read_as_it_was_written() {
        let tokens = [
            Token::Map { length: 2, is_frozen: true },
            Token::Symbol(b"a"),
            Token::List { length: 4, is_frozen: false },
            Token::Nil,
            Token::True,
            Token::False,
            Token::Integer(i64::MIN),
            Token::FrozenText("é".as_bytes()),
            Token::Date { day: -1, start: f64::INFINITY },
            Token::Text(&[0xff; 300]),
            Token::Float(-0.5),
            Token::Integer(-1),
            Token::Again(300),
        ];
        let mut writer = Writer::default();
        tokens.iter().for_each(|token| writer.put(*token));
        let bytes = writer.into_bytes();
        assert_eq!(Reader::new(&bytes).collect::<Vec<_>>(), tokens);
    }

    #[test]
    fn a_length_that_cannot_be_ends_the_document() {
        let mut writer = Writer::default();
        writer.put(Token::List { length: 1 << 40, is_frozen: false });
        let bytes = writer.into_bytes();
        assert_eq!(Reader::new(&bytes).next(), None);
    }

    proptest! {
        #[test]
        fn any_number_is_read_as_it_was_written(number: i64) {
            let mut writer = Writer::default();
            writer.put(Token::Integer(number));
            let bytes = writer.into_bytes();
            prop_assert_eq!(Reader::new(&bytes).next(), Some(Token::Integer(number)));
        }

        #[test]
        fn any_bytes_end_somewhere(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            prop_assert!(Reader::new(&bytes).count() <= bytes.len());
        }
    }
}
