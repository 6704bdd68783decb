//! The memory of records: a ring, which is written from one end to the other and then again from its start.
//!
//! A writer reserves a piece in one atomic step, and copies its record there. Writers hold no lock, so a process that
//! is killed at any moment leaves behind nothing but a piece that no entry of the index names. A reader copies a record
//! out and then checks it: its place, its length and its checksum. The check fails for a record that was overwritten in
//! the meantime, even by a writer that was suspended until the ring had come round to its piece.

use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, Ordering};

use thruway_sys::shared_memory::Anonymous;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The words of a unit, in which places are counted: a cache line.
pub(crate) const UNIT_WORDS: usize = 8;

const WORD: usize = size_of::<u64>();

/// The bytes before each record: the place, the length in bytes and the checksum.
pub(crate) const PREFIX_BYTES: usize = 3 * WORD;

/// The ring.
#[derive(Debug)]
pub(crate) struct Ring {
    words: Anonymous,
    units: u64,
    /// One word: the number of units that were ever reserved.
    head: Anonymous,
}

/// The start of a record, in units since the ring was new. The ring's first place is not zero, so that zero names no
/// record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place(pub(crate) u64);

impl Ring {
    pub(crate) fn new(bytes_max: usize) -> io::Result<Self> {
        let units = (bytes_max / (UNIT_WORDS * WORD)).max(1);
        let head = Anonymous::new(1)?;
        // A multiple of the ring's size, so that no place is zero.
        head[0].store(units as u64, Relaxed);
        Ok(Self { words: Anonymous::new(units * UNIT_WORDS)?, units: units as u64, head })
    }

    /// The size of the ring in bytes.
    pub(crate) fn bytes_max(&self) -> usize {
        self.words.len() * WORD
    }

    /// Writes a record. `None` if the record is longer than a quarter of the ring, or was overwritten at once.
    pub(crate) fn write(&self, record: &[u8]) -> Option<Place> {
        let length = PREFIX_BYTES + record.len();
        let units = units_of(length);
        if units > self.units / 4 {
            return None;
        }
        let place = self.reserve(units);
        let words = self.words_at(place, units)?;
        let checksum = xxh3_64_with_seed(record, place.0);
        for (word, value) in words.iter().zip([place.0, length as u64, checksum]) {
            word.store(value, Relaxed);
        }
        let (whole, rest) = record.as_chunks::<WORD>();
        let body = &words[PREFIX_BYTES / WORD..];
        for (word, bytes) in body.iter().zip(whole) {
            word.store(u64::from_ne_bytes(*bytes), Relaxed);
        }
        if !rest.is_empty() {
            let mut last = [0; WORD];
            last[..rest.len()].copy_from_slice(rest);
            body[whole.len()].store(u64::from_ne_bytes(last), Relaxed);
        }
        self.holds(place, units).then_some(place)
    }

    /// Copies the record at `place` to `out`. False if the record is gone.
    pub(crate) fn read(&self, place: Place, out: &mut Vec<u8>) -> bool {
        self.copy(place, usize::MAX, out)
            .is_some_and(|checksum| xxh3_64_with_seed(out, place.0) == checksum)
    }

    /// Copies at most `most` bytes of the start of a record, unchecked: the bytes may be those of any record.
    pub(crate) fn peek(&self, place: Place, most: usize, out: &mut Vec<u8>) -> bool {
        self.copy(place, most, out).is_some()
    }

    /// The length of the record at `place` in bytes, with its prefix; `None` if the record is gone.
    pub(crate) fn length_at(&self, place: Place) -> Option<usize> {
        let prefix = self.words_at(place, 1)?;
        if prefix[0].load(Relaxed) != place.0 {
            return None;
        }
        let length = usize::try_from(prefix[1].load(Relaxed)).ok()?;
        (length >= PREFIX_BYTES && self.holds(place, units_of(length))).then_some(length)
    }

    /// The amount written since the record, as a share of the ring's size. From one on, the record is overwritten.
    pub(crate) fn age(&self, place: Place) -> f64 {
        let head = self.head[0].load(Relaxed);
        head.saturating_sub(place.0) as f64 / self.units as f64
    }

    fn copy(&self, place: Place, most: usize, out: &mut Vec<u8>) -> Option<u64> {
        let length = self.length_at(place)?;
        let words = self.words_at(place, units_of(length))?;
        let checksum = words[2].load(Relaxed);
        let bytes = (length - PREFIX_BYTES).min(most);
        out.resize(bytes, 0);
        let body = &words[PREFIX_BYTES / WORD..];
        let (whole, rest) = out.as_chunks_mut::<WORD>();
        for (bytes, word) in whole.iter_mut().zip(body) {
            *bytes = word.load(Relaxed).to_ne_bytes();
        }
        if !rest.is_empty() {
            let last = body[whole.len()].load(Relaxed).to_ne_bytes();
            rest.copy_from_slice(&last[..rest.len()]);
        }
        Some(checksum)
    }

    /// Reserves consecutive units, and skips those at the end of the ring if they are too few.
    fn reserve(&self, units: u64) -> Place {
        let mut head = self.head[0].load(Relaxed);
        loop {
            let at = head % self.units;
            let start = if at + units > self.units { head + (self.units - at) } else { head };
            let next = start + units;
            match self.head[0].compare_exchange_weak(head, next, Ordering::AcqRel, Relaxed) {
                Ok(_) => return Place(start),
                Err(current) => head = current,
            }
        }
    }

    /// Whether no part of the piece was reserved again.
    fn holds(&self, place: Place, units: u64) -> bool {
        let head = self.head[0].load(Ordering::Acquire);
        place.0 + units <= head && head <= place.0 + self.units
    }

    fn words_at(&self, place: Place, units: u64) -> Option<&[AtomicU64]> {
        let start = place.0 % self.units;
        let end = start.checked_add(units).filter(|end| *end <= self.units)?;
        let at = |unit: u64| usize::try_from(unit).ok().map(|unit| unit * UNIT_WORDS);
        self.words.get(at(start)?..at(end)?)
    }
}

fn units_of(bytes: usize) -> u64 {
    bytes.div_ceil(UNIT_WORDS * WORD) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(ring: &Ring, place: Place) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        ring.read(place, &mut out).then_some(out)
    }

    #[test]
    fn records_of_any_length_come_back_until_they_are_overwritten() {
        let ring = Ring::new(4096).unwrap();
        let mut last = None;
        for length in 0..900 {
            let record: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            let place = ring.write(&record).unwrap();
            assert_eq!(read(&ring, place), Some(record), "{length}");
            last = Some((place, length));
        }
        let (place, _) = last.unwrap();
        for _ in 0..8 {
            ring.write(&[1; 900]).unwrap();
        }
        assert_eq!(read(&ring, place), None);
        assert_eq!(ring.write(&[0; 1024]), None, "it is longer than a quarter");
        assert!(ring.age(place) > 1.0);
    }

    #[test]
    fn a_record_with_one_changed_bit_is_not_read() {
        let ring = Ring::new(4096).unwrap();
        let record: Vec<u8> = (0..500).map(|at| (at % 251) as u8).collect();
        let place = ring.write(&record).unwrap();
        let start = usize::try_from(place.0 % ring.units).unwrap() * UNIT_WORDS;
        for at in 0..(PREFIX_BYTES + record.len()).div_ceil(WORD) {
            let bit = 1 << (at % 32);
            ring.words[start + at].fetch_xor(bit, Relaxed);
            assert_eq!(read(&ring, place), None, "word {at}");
            ring.words[start + at].fetch_xor(bit, Relaxed);
        }
        assert_eq!(read(&ring, place), Some(record));
    }

    #[test]
    fn places_that_never_were_are_not_read() {
        let ring = Ring::new(4096).unwrap();
        for place in [0, 1, 63, 64, 65, u64::MAX - 64, u64::MAX] {
            assert_eq!(read(&ring, Place(place)), None, "{place}");
        }
    }
}
