//! Ruby objects as tokens of a [document](thruway_boot::document), and back.

use rb_sys::VALUE;
use std::collections::HashMap;
use thruway_boot::document::{Reader, Token, Writer};

use super::values;
use crate::ruby::value::{freeze, is_frozen};
use crate::ruby::{Gvl, NIL, RArray, RHash, RString};

/// The greatest depth of nested lists and maps. The program's stack has to hold as many calls.
const DEPTH_MAX: usize = 200;
/// The number of pairs that are passed to Ruby at a time.
const PAIRS: usize = 32;

/// The tokens of an object and of all that it holds; `None` if an object is of a class whose objects cannot be told
/// apart from their copies.
pub(super) fn encode(gvl: Gvl, object: VALUE) -> Option<Vec<u8>> {
    let mut encoder = Encoder { gvl, writer: Writer::default(), seen: HashMap::new(), depth: 0 };
    encoder.put(object)?;
    Some(encoder.writer.into_bytes())
}

/// The object that tokens stand for; `None` for invalid tokens.
///
/// Ruby may raise NoMemoryError only.
pub(super) fn decode(gvl: Gvl, bytes: &[u8]) -> Option<VALUE> {
    let objects = RArray::with_room(gvl, 0);
    let mut decoder = Decoder { gvl, reader: Reader::new(bytes), objects, depth: 0 };
    let object = decoder.object()?;
    decoder.reader.is_at_end().then_some(object)
}

struct Encoder {
    gvl: Gvl,
    writer: Writer,
    /// The number of each object that may occur in two places.
    seen: HashMap<VALUE, usize>,
    depth: usize,
}

impl Encoder {
    fn put(&mut self, object: VALUE) -> Option<()> {
        if let Some(token) = values::simple_token(self.gvl, object) {
            self.writer.put(token);
            return Some(());
        }
        if let Some(number) = self.seen.get(&object) {
            self.writer.put(Token::Again(*number));
            return Some(());
        }
        let number = self.seen.len();
        self.seen.insert(object, number);
        self.depth += 1;
        let done = if self.depth < DEPTH_MAX { self.put_object(object) } else { None };
        self.depth -= 1;
        done
    }

    fn put_object(&mut self, object: VALUE) -> Option<()> {
        let (gvl, is_frozen) = (self.gvl, is_frozen(self.gvl, object));
        let writer = &mut self.writer;
        let put = |text: &[u8]| {
            writer.put(if is_frozen { Token::FrozenText(text) } else { Token::Text(text) });
        };
        if values::read_utf8(gvl, object, put).is_some() {
            return Some(());
        }
        if let Some(list) = RArray::exactly(gvl, object) {
            // Looking at an element may run Ruby code. A list that changes meanwhile is not learned.
            let length = list.len(gvl);
            self.writer.put(Token::List { length, is_frozen });
            (0..length).try_for_each(|place| self.put(list.get(gvl, place)?))?;
            return (list.len(gvl) == length).then_some(());
        }
        if let Some(hash) = values::plain_hash(gvl, object) {
            self.writer.put(Token::Map { length: hash.len(gvl), is_frozen });
            return self.put_pairs(hash);
        }
        let (day, start) = values::date(gvl, object)?;
        self.writer.put(Token::Date { day, start });
        Some(())
    }

    fn put_pairs(&mut self, hash: RHash) -> Option<()> {
        let mut done = Some(());
        hash.each(self.gvl, |key, value| {
            done = self.put_key(key).and_then(|()| self.put(value));
            done.is_some()
        });
        done
    }

    /// A Hash keeps a frozen copy of a String that is its key, the same copy for all equal Strings. So keys are not
    /// numbered.
    fn put_key(&mut self, key: VALUE) -> Option<()> {
        let writer = &mut self.writer;
        let put = |text: &[u8]| writer.put(Token::FrozenText(text));
        values::read_utf8(self.gvl, key, put).or_else(|| self.put(key))
    }
}

struct Decoder<'a> {
    gvl: Gvl,
    reader: Reader<'a>,
    /// An Array of the objects that may occur in two places, in the order of their numbers.
    objects: RArray,
    depth: usize,
}

impl Decoder<'_> {
    fn object(&mut self) -> Option<VALUE> {
        let token = self.reader.next()?;
        match token {
            Token::Text(text) => Some(self.numbered(RString::new(self.gvl, text).value())),
            Token::FrozenText(text) => {
                Some(self.numbered(RString::interned(self.gvl, text).value()))
            }
            Token::Date { day, start } => {
                values::new_date(self.gvl, day, start).map(|date| self.numbered(date))
            }
            Token::Again(number) => self.objects.get(self.gvl, number),
            Token::List { length, is_frozen } => {
                self.nested(|decoder| decoder.list(length, is_frozen))
            }
            Token::Map { length, is_frozen } => {
                self.nested(|decoder| decoder.map(length, is_frozen))
            }
            simple => values::simple_object(self.gvl, simple),
        }
    }

    fn numbered(&mut self, object: VALUE) -> VALUE {
        self.objects.push(self.gvl, object);
        object
    }

    fn nested(&mut self, object: impl FnOnce(&mut Self) -> Option<VALUE>) -> Option<VALUE> {
        self.depth += 1;
        let object = if self.depth < DEPTH_MAX { object(self) } else { None };
        self.depth -= 1;
        object
    }

    fn list(&mut self, length: usize, is_frozen: bool) -> Option<VALUE> {
        let list = RArray::with_room(self.gvl, length);
        self.numbered(list.value());
        for _ in 0..length {
            let element = self.object()?;
            list.push(self.gvl, element);
        }
        Some(self.frozen_if(list.value(), is_frozen))
    }

    fn map(&mut self, length: usize, is_frozen: bool) -> Option<VALUE> {
        let map = RHash::new(self.gvl);
        self.numbered(map.value());
        let mut left = length;
        while left > 0 {
            let mut pairs = [NIL; PAIRS * 2];
            let count = left.min(PAIRS);
            for pair in pairs.chunks_exact_mut(2).take(count) {
                pair[0] = self.key()?;
                pair[1] = self.object()?;
            }
            map.insert(self.gvl, &pairs[..count * 2]);
            left -= count;
        }
        Some(self.frozen_if(map.value(), is_frozen))
    }

    fn frozen_if(&self, object: VALUE, is_frozen: bool) -> VALUE {
        if is_frozen { freeze(self.gvl, object) } else { object }
    }

    fn key(&mut self) -> Option<VALUE> {
        let mut ahead = self.reader.clone();
        if let Some(Token::FrozenText(text)) = ahead.next() {
            self.reader = ahead;
            return Some(RString::interned(self.gvl, text).value());
        }
        self.object()
    }
}
