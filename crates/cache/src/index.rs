//! The table that finds records: sets of entries, each with a tag and the place of a record.
//!
//! The tag is the hash of a record's name. An entry may briefly point to any record, for example while another worker
//! writes the entry. So a reader compares the name in the record, and trusts no entry.

use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use thruway_sys::shared_memory::Anonymous;

use crate::ring::Place;

/// The number of entries in a set.
const WAYS: usize = 8;

/// The number of words in an entry.
const WORDS: usize = 2;

/// The number of bytes in an entry.
pub(crate) const ENTRY_BYTES: usize = WORDS * size_of::<u64>();

/// The number of bits of the generation in a link.
const GENERATION_BITS: u32 = 16;

/// The table.
#[derive(Debug)]
pub(crate) struct Index {
    words: Anonymous,
    sets: u64,
}

/// The place of a record, and the generation in which the record was last confirmed, in one word.
///
/// A purge by prefix begins a generation. The purge visits each entry, and confirms the entries that it spares in the
/// new generation. A record that was written in the meantime has an older generation and is not used, because it is
/// unknown whether the purge has seen it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Link(u64);

impl Link {
    pub(crate) fn new(place: Place, generation: u64) -> Self {
        Self(place.0 << GENERATION_BITS | generation & 0xffff)
    }

    pub(crate) fn place(self) -> Place {
        Place(self.0 >> GENERATION_BITS)
    }

    /// The same record at another place.
    pub(crate) fn moved(self, place: Place) -> Self {
        Self::new(place, self.0)
    }

    /// The same record, confirmed in another generation.
    pub(crate) fn certified(self, generation: u64) -> Self {
        Self::new(self.place(), generation)
    }

    pub(crate) fn is_of(self, generation: u64) -> bool {
        self.0 & 0xffff == generation & 0xffff
    }
}

impl Index {
    pub(crate) fn new(bytes_max: usize) -> io::Result<Self> {
        let sets = (bytes_max / (ENTRY_BYTES * WAYS)).max(1);
        Ok(Self { words: Anonymous::new(sets * WAYS * WORDS)?, sets: sets as u64 })
    }

    /// The link of the record with the tag.
    pub(crate) fn find(&self, tag: u64) -> Option<Link> {
        let at = self.ways(tag).find(|at| self.words[*at].load(Acquire) == tag)?;
        self.link(at)
    }

    /// Links a record. The link goes to the entry of the same name, a free entry, or the oldest entry of the set.
    /// Returns the evicted link, including that of a record which was overwritten already; none if the new record
    /// replaces one of the same name.
    pub(crate) fn insert(
        &self,
        tag: u64,
        link: Link,
        is_used: impl Fn(Link) -> bool,
    ) -> Option<Link> {
        let of_name = self.ways(tag).find(|at| self.words[*at].load(Acquire) == tag);
        let is_free = |at: &usize| self.link(*at).is_none_or(|link| !is_used(link));
        let oldest = || self.ways(tag).min_by_key(|at| self.link(*at).map(Link::place));
        let at = of_name.or_else(|| self.ways(tag).find(is_free)).or_else(oldest)?;
        let removed = self.link(at).filter(|link| of_name.is_none() || !is_used(*link));
        self.words[at + 1].store(0, Release);
        self.words[at].store(tag, Release);
        self.words[at + 1].store(link.0, Release);
        removed
    }

    /// Replaces the link of an entry, unless the link has changed in the meantime.
    pub(crate) fn exchange(&self, tag: u64, from: Link, to: Option<Link>) -> bool {
        self.ways(tag)
            .any(|at| self.words[at].load(Acquire) == tag && self.exchange_at(at, from, to))
    }

    /// All links.
    pub(crate) fn links(&self) -> impl Iterator<Item = (usize, Link)> {
        let places = (0..self.words.len() / WORDS).map(|entry| entry * WORDS);
        places.filter_map(|at| Some((at, self.link(at)?)))
    }

    /// The link of the entry at `at`.
    pub(crate) fn link(&self, at: usize) -> Option<Link> {
        Some(Link(self.words[at + 1].load(Acquire))).filter(|link| link.0 != 0)
    }

    /// Replaces the link of the entry at `at`, unless the link has changed in the meantime.
    pub(crate) fn exchange_at(&self, at: usize, from: Link, to: Option<Link>) -> bool {
        let to = to.map_or(0, |link| link.0);
        self.words[at + 1].compare_exchange(from.0, to, AcqRel, Relaxed).is_ok()
    }

    fn ways(&self, tag: u64) -> impl Iterator<Item = usize> + use<> {
        let set = usize::try_from(tag % self.sets).unwrap_or(0);
        (0..WAYS).map(move |way| (set * WAYS + way) * WORDS)
    }
}

/// A table of words by hash, each of which only grows.
#[derive(Debug)]
pub(crate) struct Marks(Anonymous);

impl Marks {
    pub(crate) fn new(count: usize) -> io::Result<Self> {
        Anonymous::new(count).map(Self)
    }

    pub(crate) fn raise(&self, tag: u64, value: u64) {
        self.at(tag).fetch_max(value, AcqRel);
    }

    pub(crate) fn value(&self, tag: u64) -> u64 {
        self.at(tag).load(Acquire)
    }

    fn at(&self, tag: u64) -> &AtomicU64 {
        &self.0[usize::try_from(tag % self.0.len() as u64).unwrap_or(0)]
    }
}
