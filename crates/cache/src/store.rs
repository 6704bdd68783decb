//! The store: records in a ring, an index over them, and the rules for the validity of a record.
//!
//! Every invalidation has a number, higher than the one before. A record carries the number that was current when its
//! request began. The record is valid if no invalidation of its URL, or of everything, is younger. So a response that
//! was on its way while its page was purged or changed is never used, whenever it is stored.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use thruway_sys::shared_memory::Anonymous;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::counters::{Counter, Counters, Totals};
use crate::flights::{Departure, Flights};
use crate::index::{Index, Link, Marks};
use crate::key::{self, Key};
use crate::policy::Freshness;
use crate::record::{self, Kind, Parts, StoredResponse};
use crate::ring::Ring;

/// The bytes of the cache for each entry of the index.
const BYTES_PER_ENTRY: usize = 1024;

/// The number of words for invalidations. URLs whose hashes share a word are invalidated together.
const INVALIDATIONS: usize = 1 << 12;

/// The age, as a share of the ring, at which a record in use is written again to keep it.
const KEPT_AGE: f64 = 0.7;

/// The bytes of a record that are read to learn its name: names are at most as long as request heads.
const NAME_BYTES_MAX: usize = 64 << 10;

/// The smallest cache, in bytes.
pub const BYTES_MIN: usize = 1 << 20;

/// The limits of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The memory of the cache including its index, in bytes.
    pub bytes_max: usize,
    /// The longest body that is stored, in bytes, at most a quarter of the cache.
    pub item_bytes_max: usize,
}

/// A cache that is shared by the processes forked after its creation.
#[derive(Debug)]
pub struct Store {
    seed: u64,
    limits: Limits,
    ring: Ring,
    index: Index,
    /// By the hash of a URL: the number of its last invalidation.
    invalidations: Marks,
    /// The number of the last invalidation, the number of the last purge of everything, and the generation of the
    /// index.
    control: Anonymous,
    flights: Arc<Flights>,
    counters: Counters,
}

const SEQUENCE: usize = 0;
const FLOOR: usize = 8;
const GENERATION: usize = 16;
const CONTROL_WORDS: usize = 24;

/// The moment at which a request began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    sequence: u64,
    generation: u64,
}

/// A response to be stored.
#[derive(Debug, Clone, Copy)]
pub struct NewResponse<'a> {
    /// The moment at which the request began.
    pub moment: Moment,
    /// The status.
    pub status: u16,
    /// The field lines of the head that are stored; see [`record::stored_lines`].
    pub lines: &'a [u8],
    /// The body.
    pub body: &'a [u8],
    /// The times of the response.
    pub freshness: Freshness,
    /// The time of the monotonic clock.
    pub now_ms: u64,
}

/// The part of a cache that a purge removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purge<'a> {
    /// Everything.
    All,
    /// One URL, in all variants.
    Url(&'a [u8]),
    /// All URLs with a prefix.
    Prefix(&'a [u8]),
    /// One path with its query, at all hosts.
    Path(&'a [u8]),
    /// All paths with a prefix, at all hosts.
    PathPrefix(&'a [u8]),
}

impl<'a> Purge<'a> {
    /// Parses a pattern: `*` for everything, a URL, or a path, which applies to all hosts. A pattern that ends in `*`
    /// is a prefix. `normal` holds the URL in the form of names.
    ///
    /// # Errors
    /// A description of valid patterns.
    pub fn parse(pattern: &'a [u8], normal: &'a mut Vec<u8>) -> Result<Self, &'static str> {
        let prefix = pattern.strip_suffix(b"*");
        let text = prefix.unwrap_or(pattern);
        if text.is_empty() && prefix.is_some() {
            return Ok(Self::All);
        }
        if text.starts_with(b"/") {
            return Ok(if prefix.is_some() { Self::PathPrefix(text) } else { Self::Path(text) });
        }
        *normal = key::normal_url(text)
            .ok_or("a page to purge is an http:// or https:// URL, a path, or * for all")?;
        Ok(if prefix.is_some() { Self::Prefix(normal) } else { Self::Url(normal) })
    }
}

impl Store {
    /// Creates an empty cache.
    ///
    /// # Errors
    /// The system has no memory left.
    pub fn new(limits: Limits) -> io::Result<Self> {
        let bytes_max = limits.bytes_max.max(BYTES_MIN);
        let entries = bytes_max / BYTES_PER_ENTRY;
        let index_bytes = entries * crate::index::ENTRY_BYTES;
        let control = Anonymous::new(CONTROL_WORDS)?;
        Ok(Self {
            seed: RandomState::new().hash_one(0),
            limits,
            ring: Ring::new(bytes_max - index_bytes)?,
            index: Index::new(index_bytes)?,
            invalidations: Marks::new(INVALIDATIONS)?,
            control,
            flights: Arc::new(Flights::new()?),
            counters: Counters::new()?,
        })
    }

    /// Returns the longest body that is stored, in bytes.
    #[must_use]
    pub fn item_bytes_max(&self) -> usize {
        self.limits.item_bytes_max.min(self.ring.bytes_max() / 4)
    }

    /// Counts an event.
    pub fn count(&self, counter: Counter) {
        self.counters.add(counter, 1);
    }

    /// Returns the moment of a request that begins now.
    #[must_use]
    pub fn moment(&self) -> Moment {
        let word = |at: usize| self.control[at].load(Acquire);
        Moment { generation: word(GENERATION), sequence: word(SEQUENCE) }
    }

    /// Finds the response to a request with the fields. The response uses `buffer`, which otherwise stays with the
    /// caller.
    pub fn find<'a>(
        &self,
        key: &Key,
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
        buffer: &mut Vec<u8>,
    ) -> Option<StoredResponse> {
        let found = self.read(key.base(), key.url(), buffer)?;
        if found.kind() == Kind::Response {
            return Some(found);
        }
        let name = key.variant(found.body(), fields);
        *buffer = found.into_buffer();
        self.read(&name, key.url(), buffer).filter(|found| found.kind() == Kind::Response)
    }

    /// Stores the response to a request with the fields. False if the response is too long.
    pub fn put<'a>(
        &self,
        key: &Key,
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
        response: NewResponse<'_>,
    ) -> bool {
        if response.body.len() > self.item_bytes_max() {
            return false;
        }
        let vary = key::vary_list(record::fields(response.lines));
        let NewResponse { moment, status, lines, body, freshness, now_ms } = response;
        let parts = Parts {
            kind: Kind::Response,
            name: key.base(),
            url_bytes: key.url().len(),
            status,
            freshness,
            sequence: moment.sequence,
            stored_ms: now_ms,
            lines,
            body,
        };
        let is_stored = if vary.is_empty() {
            self.write(parts, moment)
        } else {
            let name = key.variant(&vary, fields);
            self.write(Parts { name: &name, ..parts }, moment)
                && self.write_vary_list(parts, &vary, moment)
        };
        if is_stored {
            self.count(Counter::Stored);
        }
        is_stored
    }

    /// Invalidates the responses to a URL, because a request may have changed the page.
    pub fn invalidate(&self, url: &[u8]) {
        self.invalidations.raise(self.tag(url), self.next_sequence());
        self.count(Counter::Invalidated);
    }

    /// Removes responses and returns their number. Responses to the purged URLs whose requests began before the purge
    /// are not used, even if they are stored later.
    pub fn purge(&self, purge: Purge<'_>) -> usize {
        let sequence = self.next_sequence();
        let removed = match purge {
            Purge::All => {
                self.control[FLOOR].fetch_max(sequence, AcqRel);
                self.sweep(|_| true, None)
            }
            Purge::Url(url) => {
                self.invalidations.raise(self.tag(url), sequence);
                self.sweep(|found| found == url, None)
            }
            Purge::Prefix(prefix) => self.purge_matching(|url| url.starts_with(prefix)),
            Purge::Path(path) => self.purge_matching(|url| path_of(url) == path),
            Purge::PathPrefix(prefix) => {
                self.purge_matching(|url| path_of(url).starts_with(prefix))
            }
        };
        self.counters.add(Counter::Purged, removed as u64);
        removed
    }

    /// Returns the counters and the contents of the cache. Visits each entry of the index.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let (mut items, mut bytes) = (0, 0);
        let mut buffer = Vec::new();
        for (at, link) in self.index.links() {
            match self.ring.length_at(link.place()) {
                Some(length) => {
                    self.ring.peek(link.place(), NAME_BYTES_MAX, &mut buffer);
                    items += u64::from(
                        record::peeked(&buffer).is_some_and(|(_, is_response)| is_response),
                    );
                    bytes += length as u64;
                }
                None => self.drop_overwritten(at, link),
            }
        }
        let bytes_max = self.ring.bytes_max() as u64;
        Totals { items, bytes, bytes_max, ..self.counters.read() }
    }

    /// Departs to ask the application for the response with the tag, on behalf of `worker`.
    pub fn depart(&self, tag: u64, worker: usize, now_ms: u64) -> Departure {
        self.flights.depart(tag, worker, now_ms)
    }

    /// Departs to renew a response that is served stale in the meantime.
    pub fn depart_to_renew(&self, tag: u64, worker: usize, now_ms: u64) -> Departure {
        self.flights.reserve(tag, worker, now_ms)
    }

    /// Whether another request asks the application for the same response.
    #[must_use]
    pub fn is_flying(&self, tag: u64, now_ms: u64) -> bool {
        self.flights.is_flying(tag, now_ms)
    }

    /// Records that a response cannot be shared, so that requests for it do not wait for each other.
    pub fn note_unshared(&self, tag: u64, now_ms: u64) {
        self.flights.note_unshared(tag, now_ms);
    }

    /// Ends the flights of a dead worker.
    pub fn release_worker(&self, worker: usize) {
        self.flights.release_worker(worker);
    }

    /// Returns the tag by which requests for the same response wait for each other. Requests that may get different
    /// variants have different tags, as far as the variants are known.
    pub fn flight_tag<'a>(
        &self,
        key: &Key,
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    ) -> u64 {
        let mut buffer = Vec::new();
        match self.read(key.base(), key.url(), &mut buffer) {
            Some(found) if found.kind() == Kind::VaryList => {
                self.tag(&key.variant(found.body(), fields))
            }
            _ => self.tag(key.base()),
        }
    }

    fn tag(&self, name: &[u8]) -> u64 {
        xxh3_64_with_seed(name, self.seed).max(1)
    }

    fn next_sequence(&self) -> u64 {
        self.control[SEQUENCE].fetch_add(1, AcqRel) + 1
    }

    /// Reads the valid record with the name.
    fn read(&self, name: &[u8], url: &[u8], buffer: &mut Vec<u8>) -> Option<StoredResponse> {
        let tag = self.tag(name);
        let link = self.index.find(tag)?;
        if !link.is_of(self.control[GENERATION].load(Acquire)) {
            return None;
        }
        if !self.ring.read(link.place(), buffer) {
            if self.ring.length_at(link.place()).is_none() && self.index.exchange(tag, link, None) {
                self.count(Counter::Evicted);
            }
            return None;
        }
        let record = StoredResponse::new(std::mem::take(buffer))?;
        let oldest = self.invalidations.value(self.tag(url)).max(self.control[FLOOR].load(Acquire));
        if record.name() != name || record.sequence() < oldest {
            *buffer = record.into_buffer();
            return None;
        }
        self.keep(tag, link, &record);
        Some(record)
    }

    /// Writes a record in use again before it is overwritten.
    fn keep(&self, tag: u64, link: Link, record: &StoredResponse) {
        if self.ring.age(link.place()) < KEPT_AGE {
            return;
        }
        let Some(place) = self.ring.write(record.bytes()) else { return };
        self.index.exchange(tag, link, Some(link.moved(place)));
    }

    fn write(&self, parts: Parts<'_>, moment: Moment) -> bool {
        let Some(place) = self.ring.write(&parts.to_bytes()) else { return false };
        let link = Link::new(place, moment.generation);
        let is_used = |link: Link| self.ring.length_at(link.place()).is_some();
        if self.index.insert(self.tag(parts.name), link, is_used).is_some() {
            self.count(Counter::Evicted);
        }
        true
    }

    /// Writes the list of fields by which responses vary, unless the same list is stored.
    fn write_vary_list(&self, parts: Parts<'_>, vary: &[u8], moment: Moment) -> bool {
        let mut buffer = Vec::new();
        let url = &parts.name[..parts.url_bytes];
        let current = self.read(parts.name, url, &mut buffer);
        if current.is_some_and(|it| it.kind() == Kind::VaryList && it.body() == vary) {
            return true;
        }
        let list = Parts { kind: Kind::VaryList, lines: &[], body: vary, ..parts };
        self.write(list, moment)
    }

    fn purge_matching(&self, matches: impl Fn(&[u8]) -> bool) -> usize {
        let generation = self.control[GENERATION].fetch_add(1, AcqRel) + 1;
        self.sweep(matches, Some(generation))
    }

    /// Removes the records whose URLs match, and confirms all others in the new generation, if there is one.
    fn sweep(&self, matches: impl Fn(&[u8]) -> bool, generation: Option<u64>) -> usize {
        let mut removed = 0;
        let mut buffer = Vec::new();
        let entries: Vec<_> = self.index.links().collect();
        for (at, mut link) in entries {
            loop {
                if generation.is_some_and(|generation| !link.is_of(generation.wrapping_sub(1))) {
                    // The record was written during an older purge, or already has the new generation.
                    let is_new = generation.is_some_and(|generation| link.is_of(generation));
                    if is_new || self.index.exchange_at(at, link, None) {
                        break;
                    }
                } else {
                    let is_read = self.ring.peek(link.place(), NAME_BYTES_MAX, &mut buffer);
                    let peeked = record::peeked(&buffer).filter(|_| is_read);
                    let goes = peeked.is_none_or(|(url, _)| matches(url));
                    let to = generation.map(|generation| link.certified(generation));
                    let to = if goes { None } else { Some(to.unwrap_or(link)) };
                    if to == Some(link) || self.index.exchange_at(at, link, to) {
                        removed +=
                            usize::from(goes && peeked.is_some_and(|(_, is_response)| is_response));
                        break;
                    }
                }
                match self.index.link(at) {
                    Some(current) => link = current,
                    None => break,
                }
            }
        }
        removed
    }

    fn drop_overwritten(&self, at: usize, link: Link) {
        if self.index.exchange_at(at, link, None) {
            self.count(Counter::Evicted);
        }
    }
}

/// The path and the query of a URL in a name.
fn path_of(url: &[u8]) -> &[u8] {
    let start = url.windows(3).position(|three| three == b"://").map_or(0, |at| at + 3);
    let slash = url[start..].iter().position(|byte| *byte == b'/');
    slash.map_or(&[], |at| &url[start + at..])
}

#[cfg(test)]
mod tests;
