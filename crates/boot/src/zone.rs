//! The content of a time zone's file, as the sequence of [tokens](crate::document) from which a program builds its
//! objects.
//!
//! The offsets come first: their number, and of each the two numbers of seconds and the abbreviation. Then come the
//! transitions: their number, and of each the offset that it ends, the offset that it begins, and its time. A time is
//! the distance from the transition before it. The offset that a transition ends stands there, after `true`, only if
//! the transition before it does not begin that offset.

use xxhash_rust::xxh3::xxh3_128;

use crate::document::{Reader, Token, Writer};

/// The content of a time zone's file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Zone<'a> {
    /// The offsets, each of which is one object of the program.
    pub offsets: Vec<Offset<'a>>,
    /// The transitions in the order of their times. In a zone without transitions, the first offset always applies.
    pub transitions: Vec<Transition>,
}

/// A difference from universal time, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offset<'a> {
    /// The difference of standard time.
    pub base: i64,
    /// The further difference, of daylight saving time.
    pub standard: i64,
    /// The abbreviation of the time, such as `CEST`.
    pub abbreviation: &'a [u8],
}

/// The change from an offset to another one. Offsets are places in [`Zone::offsets`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    /// The offset that begins.
    pub offset: usize,
    /// The offset that ends.
    pub previous: usize,
    /// The time of the change, in seconds since 1970.
    pub at: i64,
}

/// Returns the name of the way in which a zone is read, for the name of the pack's entry: the version of TZInfo, the
/// year up to which TZInfo computes transitions, and the [`digest`] of its code.
#[must_use]
pub fn variant(version: &str, year: i64, code: u128) -> Vec<u8> {
    format!("read {version} {year} {code:032x}").into_bytes()
}

/// Returns the digest of code on which the content depends.
#[must_use]
pub fn digest(code: &[u8]) -> u128 {
    xxh3_128(code)
}

impl<'a> Zone<'a> {
    /// Returns the zone in bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        put_count(&mut writer, self.offsets.len());
        for offset in &self.offsets {
            writer.put(Token::Integer(offset.base));
            writer.put(Token::Integer(offset.standard));
            writer.put(Token::FrozenText(offset.abbreviation));
        }
        put_count(&mut writer, self.transitions.len());
        let mut before = None;
        let mut at = 0;
        for transition in &self.transitions {
            if before != Some(transition.previous) {
                writer.put(Token::True);
                put_count(&mut writer, transition.previous);
            }
            put_count(&mut writer, transition.offset);
            writer.put(Token::Integer(transition.at.wrapping_sub(at)));
            (before, at) = (Some(transition.offset), transition.at);
        }
        writer.into_bytes()
    }

    /// Returns the zone that [`encode`](Self::encode) wrote; `None` for other bytes. Each place in the result is one of
    /// an offset, and there is an offset.
    #[must_use]
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let mut zone = Self::default();
        for _ in 0..count(&mut reader)? {
            zone.offsets.push(offset(&mut reader)?);
        }
        let mut before = None;
        let mut at = 0;
        for _ in 0..count(&mut reader)? {
            let transition = transition(&mut reader, before, at)?;
            (before, at) = (Some(transition.offset), transition.at);
            zone.transitions.push(transition);
        }
        let places = zone.transitions.iter().flat_map(|one| [one.offset, one.previous]);
        let last = places.max().unwrap_or(0);
        (last < zone.offsets.len() && reader.is_at_end()).then_some(zone)
    }
}

fn put_count(writer: &mut Writer, count: usize) {
    writer.put(Token::Integer(i64::try_from(count).unwrap_or(i64::MAX)));
}

fn offset<'a>(reader: &mut Reader<'a>) -> Option<Offset<'a>> {
    let (base, standard) = (integer(reader)?, integer(reader)?);
    let Token::FrozenText(abbreviation) = reader.next()? else { return None };
    Some(Offset { base, standard, abbreviation })
}

fn transition(reader: &mut Reader<'_>, before: Option<usize>, at: i64) -> Option<Transition> {
    let (previous, offset) = match reader.next()? {
        Token::True => (count(reader)?, count(reader)?),
        Token::Integer(offset) => (before?, usize::try_from(offset).ok()?),
        _ => return None,
    };
    Some(Transition { offset, previous, at: at.wrapping_add(integer(reader)?) })
}

/// Reads an integer; `None` if the next token is of another type.
fn integer(reader: &mut Reader<'_>) -> Option<i64> {
    match reader.next()? {
        Token::Integer(number) => Some(number),
        _ => None,
    }
}

fn count(reader: &mut Reader<'_>) -> Option<usize> {
    usize::try_from(integer(reader)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone() -> Zone<'static> {
        let offset = |base, standard, abbreviation| Offset { base, standard, abbreviation };
        let at = |offset, previous, at| Transition { offset, previous, at };
        Zone {
            offsets: vec![
                offset(3208, 0, b"LMT"),
                offset(3600, 0, b"CET"),
                offset(3600, 3600, b"CEST"),
                offset(0, 0, b""),
            ],
            // The second one does not end the offset that the first one has begun.
            transitions: vec![
                at(1, 0, i64::MIN),
                at(2, 3, -1_693_706_400),
                at(1, 2, -1_680_483_600),
                at(2, 1, i64::MAX),
            ],
        }
    }

    #[test]
    fn a_zone_comes_back_as_it_was() {
        let zone = zone();
        assert_eq!(Zone::decode(&zone.encode()), Some(zone.clone()));
        let constant = Zone { transitions: Vec::new(), ..zone };
        assert_eq!(Zone::decode(&constant.encode()), Some(constant));
    }

    #[test]
    fn damaged_bytes_give_no_zone_or_a_sound_one() {
        let bytes = zone().encode();
        for length in 0..bytes.len() {
            assert_eq!(Zone::decode(&bytes[..length]), None, "{length}");
        }
        for (place, value) in (0..bytes.len()).flat_map(|place| (0..=255).map(move |v| (place, v)))
        {
            let mut bytes = bytes.clone();
            bytes[place] = value;
            if let Some(zone) = Zone::decode(&bytes) {
                let count = zone.offsets.len();
                let is_sound = |one: &Transition| one.offset < count && one.previous < count;
                assert!(count > 0 && zone.transitions.iter().all(is_sound), "{place} {value}");
            }
        }
        assert_eq!(Zone::decode(&Zone::default().encode()), None, "no offset");
    }
}
