//! Reads forged packs: whatever the bytes are, the reader returns only checked data.
//!
//! The corpus holds packs of format 1 and inputs that were worth keeping. All are replayed, and then changed
//! at random: `THRUWAY_CASES` times (`cargo x fuzz` sets a million), with the seed `THRUWAY_SEED`.
#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;

use thruway_pack::layout::MAGIC;
use thruway_pack::{Builder, Item, Pack, Stamp};
use thruway_testing::{Random, setting};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// The number of cases in CI.
const CASES: u64 = 50_000;
const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus");
/// The sizes of the header and of an entry, and the offsets of the header's counts, in format 1.
const HEADER: usize = 80;
const RECORD: usize = 88;
const IDENTITY_BYTES: usize = 12;
const SLOTS: usize = 16;
const ENTRIES: usize = 20;

/// Returns a number close to a limit, or any number.
fn number(random: &mut Random) -> u64 {
    let edges: [u64; 10] =
        [0, 1, 7, 16, 87, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 1 << 30, 1 << 62];
    match random.below(3) {
        0 => random.number(),
        1 => random.below(1024) as u64,
        _ => edges[random.below(edges.len())].wrapping_add(random.number() % 3).wrapping_sub(1),
    }
}

/// Returns every file of the corpus.
fn corpus() -> Vec<Vec<u8>> {
    let files = fs::read_dir(CORPUS).expect("there is a corpus").flatten();
    let mut paths: Vec<_> = files.map(|file| file.path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).expect("it can be read")).collect()
}

/// Changes a few bytes or numbers, or the length.
fn change(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len());
        let number = number(random).to_le_bytes();
        match random.below(8) {
            0 => bytes.truncate(at),
            1 => bytes.extend_from_slice(&number),
            2 if !bytes.is_empty() => bytes[at] ^= number[0],
            wide => {
                // The format's numbers are at multiples of 4.
                let (at, length) = (at & !3, if wide < 6 { 4 } else { 8 });
                if let Some(place) = bytes.get_mut(at..at + length) {
                    place.copy_from_slice(&number[..length]);
                }
            }
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    let four = bytes.get(at..).and_then(|rest| rest.first_chunk());
    four.map_or(0, |four| u32::from_le_bytes(*four) as usize)
}

fn put(bytes: &mut [u8], at: usize, number: u64) {
    if let Some(place) = bytes.get_mut(at..at + 8) {
        place.copy_from_slice(&number.to_le_bytes());
    }
}

/// Corrects the checksums of the header and of every entry, so that the reader gets past them.
fn seal(bytes: &mut [u8]) {
    let identity_bytes = u32_at(bytes, IDENTITY_BYTES);
    let identity = bytes.get(HEADER..HEADER.saturating_add(identity_bytes)).map(xxh3_64);
    put(bytes, 32, bytes.len() as u64);
    put(bytes, 48, identity.unwrap_or(0));
    let sum = bytes.get(..HEADER - 8).map_or(0, xxh3_64);
    put(bytes, HEADER - 8, sum);
    let slots = u32_at(bytes, SLOTS);
    let records = HEADER + identity_bytes.next_multiple_of(8) + (slots * 4).next_multiple_of(8);
    let entries = u32_at(bytes, ENTRIES);
    for at in (0..entries.min(16)).map(|place| records.saturating_add(place * RECORD)) {
        let name = (records + entries * RECORD).saturating_add(u32_at(bytes, at + 8));
        let name = bytes.get(name..name.saturating_add(u32_at(bytes, at + 12))).map(xxh3_64);
        let record = bytes.get(at..at + RECORD - 8);
        if let (Some(name), Some(record)) = (name, record) {
            put(bytes, at + RECORD - 8, xxh3_64_with_seed(record, name));
        }
    }
}

/// Exercises every look-up and builds a new pack of all intact entries. Returns whether the bytes are a pack.
fn explore(bytes: &[u8]) -> bool {
    let Ok(pack) = Pack::from_bytes(bytes) else { return false };
    let mut builder = Builder::new(pack.identity());
    for entry in pack.entries() {
        if let Some(data) = entry.data() {
            assert_eq!(data.len() as u64, entry.data_bytes());
        }
        let found = pack.find(entry.kind(), entry.name());
        assert!(found.is_none_or(|found| found.name() == entry.name()));
        builder.keep(&entry);
    }
    assert!(pack.damages().len() <= 2 * pack.len());
    assert!(pack.find(u32::MAX, b"nothing").is_none_or(|found| found.name() == b"nothing"));
    let again = builder.finish(pack.written_ns()).expect("it is no larger");
    let again = Pack::from_bytes(&again).expect("it is sound");
    assert!(again.damages().is_empty() && again.len() == builder.len());
    true
}

#[test]
fn packs_of_format_1_are_read_for_ever() {
    let bytes = fs::read(Path::new(CORPUS).join("small.pack")).unwrap();
    let pack = Pack::from_bytes(&bytes).unwrap();
    let stamp = Stamp { size: 1, mtime_ns: 2, ctime_ns: 3, inode: 4 };
    let mut builder = Builder::new(b"ruby 3.1");
    builder.insert(1, b"/a.rb", Item::new(stamp, &b"code of a"[..]).flags(5));
    builder.insert(2, b"/", Item::new(stamp, Vec::new()));
    builder.insert(9, b"", Item::new(Stamp::default(), vec![7; 33]));
    assert_eq!(builder.finish(6).unwrap(), bytes, "the format is what it was");
    assert!(pack.damages().is_empty());
}

#[test]
fn the_corpus_is_replayed() {
    let packs = corpus().iter().filter(|bytes| explore(bytes)).count();
    assert!(packs >= 2, "{packs} of the corpus are packs");
}

#[test]
fn forged_packs_never_say_what_was_not_checked() {
    let corpus = corpus();
    let mut random = Random::from_environment();
    let mut packs = 0_u64;
    let cases = setting("THRUWAY_CASES", CASES);
    for _ in 0..cases {
        let mut bytes = corpus[random.below(corpus.len())].clone();
        change(&mut bytes, &mut random);
        if random.below(8) > 0 {
            seal(&mut bytes);
        }
        packs += u64::from(explore(&bytes));
    }
    assert!(packs > cases / 20, "{packs} of {cases} got beyond the header");
    assert_eq!(MAGIC, *b"THRUPACK");
}
