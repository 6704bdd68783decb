//! Ruby objects as tokens of a [document](thruway_boot::document), and back.

use std::collections::HashMap;
use std::ffi::{c_int, c_long};

use rb_sys::VALUE;
use thruway_boot::document::{Reader, Token, Writer};

use super::values;
use super::vm::{self, NIL};

/// Deepest nesting of lists and maps; a program's stack has to hold as many calls.
const DEPTH_MAX: usize = 200;
/// How many pairs are handed to Ruby at a time.
const PAIRS: usize = 32;

/// The tokens of an object and all that it holds; `None` if one of them is of a class whose objects
/// cannot be told apart from copies of them.
pub(super) fn encode(object: VALUE) -> Option<Vec<u8>> {
    let mut encoder = Encoder { writer: Writer::default(), seen: HashMap::new(), depth: 0 };
    encoder.put(object)?;
    Some(encoder.writer.into_bytes())
}

/// The object that the tokens stand for; `None` if they stand for none.
///
/// Ruby may raise NoMemoryError only.
pub(super) fn decode(bytes: &[u8]) -> Option<VALUE> {
    let objects = values::new_array_for(0);
    let mut decoder = Decoder { reader: Reader::new(bytes), objects, depth: 0 };
    let object = decoder.object()?;
    decoder.reader.is_at_end().then_some(object)
}

struct Encoder {
    writer: Writer,
    /// The number of every object that may stand in two places.
    seen: HashMap<VALUE, usize>,
    depth: usize,
}

impl Encoder {
    fn put(&mut self, object: VALUE) -> Option<()> {
        if let Some(token) = values::simple_token(object) {
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
        let is_frozen = values::is_frozen(object);
        // SAFETY: the object is held by the one that is encoded, and no Ruby code changes it.
        if let Some(text) = unsafe { values::utf8_text(object) } {
            self.writer.put(if is_frozen { Token::FrozenText(text) } else { Token::Text(text) });
            return Some(());
        }
        // SAFETY: as above.
        if let Some(list) = unsafe { values::plain_elements(object) } {
            self.writer.put(Token::List { length: list.len(), is_frozen });
            return list.iter().try_for_each(|element| self.put(*element));
        }
        if let Some(length) = values::plain_hash_length(object) {
            self.writer.put(Token::Map { length, is_frozen });
            return self.put_pairs(object);
        }
        let (day, start) = values::date(object)?;
        self.writer.put(Token::Date { day, start });
        Some(())
    }

    fn put_pairs(&mut self, hash: VALUE) -> Option<()> {
        struct Pairs<'a> {
            encoder: &'a mut Encoder,
            done: Option<()>,
        }
        unsafe extern "C" fn pair(key: VALUE, value: VALUE, pairs: VALUE) -> c_int {
            // SAFETY: `put_pairs` passes the address of its own local, which outlives the call.
            let pairs = unsafe { &mut *(pairs as *mut Pairs<'_>) };
            pairs.done = pairs.encoder.put_key(key).and_then(|()| pairs.encoder.put(value));
            c_int::from(pairs.done.is_none())
        }
        let mut pairs = Pairs { encoder: self, done: Some(()) };
        // SAFETY: it is a Hash; `pair` runs no Ruby code, so it is not changed meanwhile.
        unsafe { rb_sys::rb_hash_foreach(hash, Some(pair), &raw mut pairs as VALUE) };
        pairs.done
    }

    /// A Hash keeps a frozen copy of a text that is its key, the same one for all equal texts; so keys
    /// are not counted.
    fn put_key(&mut self, key: VALUE) -> Option<()> {
        // SAFETY: the key is held by the Hash that is encoded, and no Ruby code changes it.
        match unsafe { values::utf8_text(key) } {
            Some(text) => {
                self.writer.put(Token::FrozenText(text));
                Some(())
            }
            None => self.put(key),
        }
    }
}

struct Decoder<'a> {
    reader: Reader<'a>,
    /// An Array of the objects that may stand in two places, in the order of their numbers.
    objects: VALUE,
    depth: usize,
}

impl Decoder<'_> {
    fn object(&mut self) -> Option<VALUE> {
        let token = self.reader.next()?;
        match token {
            Token::Text(text) => Some(self.numbered(crate::ruby::utf8_string(text))),
            Token::FrozenText(text) => Some(self.numbered(values::interned(text))),
            Token::Date { day, start } => {
                values::new_date(day, start).map(|date| self.numbered(date))
            }
            Token::Again(number) => values::element(self.objects, number),
            Token::List { length, is_frozen } => {
                self.nested(|decoder| decoder.list(length, is_frozen))
            }
            Token::Map { length, is_frozen } => {
                self.nested(|decoder| decoder.map(length, is_frozen))
            }
            simple => values::simple_object(simple),
        }
    }

    fn numbered(&mut self, object: VALUE) -> VALUE {
        vm::push(self.objects, object);
        object
    }

    fn nested(&mut self, object: impl FnOnce(&mut Self) -> Option<VALUE>) -> Option<VALUE> {
        self.depth += 1;
        let object = if self.depth < DEPTH_MAX { object(self) } else { None };
        self.depth -= 1;
        object
    }

    fn list(&mut self, length: usize, is_frozen: bool) -> Option<VALUE> {
        let list = values::new_array_for(length);
        self.numbered(list);
        for _ in 0..length {
            let element = self.object()?;
            vm::push(list, element);
        }
        Some(values::frozen_if(list, is_frozen))
    }

    fn map(&mut self, length: usize, is_frozen: bool) -> Option<VALUE> {
        let map = values::new_hash();
        self.numbered(map);
        let mut left = length;
        while left > 0 {
            let mut pairs = [NIL; PAIRS * 2];
            let count = left.min(PAIRS);
            for pair in pairs.chunks_exact_mut(2).take(count) {
                pair[0] = self.key()?;
                pair[1] = self.object()?;
            }
            // SAFETY: the pointer is valid for that many; the keys are frozen texts or simple.
            unsafe {
                rb_sys::rb_hash_bulk_insert((count * 2) as c_long, pairs.as_ptr(), map);
            }
            left -= count;
        }
        Some(values::frozen_if(map, is_frozen))
    }

    fn key(&mut self) -> Option<VALUE> {
        let mut ahead = self.reader.clone();
        if let Some(Token::FrozenText(text)) = ahead.next() {
            self.reader = ahead;
            return Some(values::interned(text));
        }
        self.object()
    }
}
