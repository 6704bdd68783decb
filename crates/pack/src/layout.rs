//! The layout of a pack, format 1. All numbers are little-endian.
//!
//! ```text
//! header      80 bytes, see `Header`
//! identity    given by the caller, which refuses a pack with another one; padded to 8
//! slots       u32 each, a power of two of them; padded to 8: a hash table of places in `entries`
//! entries     88 bytes each, see `Record`
//! names       one after the other; padded to 16
//! data        each item at a multiple of 16
//! ```
//!
//! The offsets of the sections are not stored, but follow from the counts in the header. A slot holds 0 if
//! empty, or else the index of an entry plus one. The search for an entry begins at the slot given by the low
//! bits of its hash, and continues with the next slot until an empty one.
//!
//! Checksums are 64-bit XXH3, so a flipped bit or a torn write is missed with a probability of 2⁻⁶⁴. At more
//! than 10 GB/s, the 11 MB of a Rails application take one millisecond. Checksums protect against accidents,
//! not attackers: against those, the owner and the mode of a pack decide.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::Stamp;

/// The first bytes of every pack.
pub const MAGIC: [u8; 8] = *b"THRUPACK";
/// The format described here. Packs of other formats are not read.
pub const FORMAT: u32 = 1;
/// The alignment of an item's data, since Ruby reads compiled code in place.
pub const ALIGNMENT: usize = 16;
/// The most entries of a pack: ten times the files of the largest known Ruby application.
pub const ENTRIES_MAX: usize = 1 << 20;
/// The most bytes of a pack. A larger pack would cost more than it saves.
pub const PACK_BYTES_MAX: usize = 1 << 30;

pub(crate) const HEADER_BYTES: usize = 80;
pub(crate) const RECORD_BYTES: usize = 88;

/// The header of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) identity_bytes: u32,
    pub(crate) slots: u32,
    pub(crate) entries: u32,
    pub(crate) names_bytes: u64,
    pub(crate) file_bytes: u64,
    pub(crate) written_ns: i64,
    pub(crate) identity_checksum: u64,
}

/// A stored entry without its name and data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) hash: u64,
    pub(crate) name_at: u32,
    pub(crate) name_bytes: u32,
    pub(crate) kind: u32,
    pub(crate) flags: u32,
    pub(crate) stamp: Stamp,
    pub(crate) data_at: u64,
    pub(crate) data_bytes: u64,
    pub(crate) data_checksum: u64,
}

/// The offsets of the sections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sections {
    pub(crate) slots: usize,
    pub(crate) entries: usize,
    pub(crate) names: usize,
    pub(crate) data: usize,
}

impl Header {
    /// Returns the offsets of the sections; `None` if the counts contradict each other or exceed the limits.
    pub(crate) fn sections(&self) -> Option<Sections> {
        let (slots, entries) = (self.slots as usize, self.entries as usize);
        let sound = slots.is_power_of_two() && entries < slots && entries <= ENTRIES_MAX;
        let names_bytes = usize::try_from(self.names_bytes).ok()?;
        let identity_bytes = self.identity_bytes as usize;
        if !sound || slots > 4 * ENTRIES_MAX || names_bytes.max(identity_bytes) > PACK_BYTES_MAX {
            return None;
        }
        let slots_at = HEADER_BYTES + identity_bytes.next_multiple_of(8);
        let entries_at = slots_at + (slots * 4).next_multiple_of(8);
        let names_at = entries_at + entries * RECORD_BYTES;
        let data_at = (names_at + names_bytes).next_multiple_of(ALIGNMENT);
        Some(Sections { slots: slots_at, entries: entries_at, names: names_at, data: data_at })
    }

    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut writer = Writer { bytes: &mut bytes, at: 0 };
        writer.put(&MAGIC);
        writer.put(&FORMAT.to_le_bytes());
        writer.put(&self.identity_bytes.to_le_bytes());
        writer.put(&self.slots.to_le_bytes());
        writer.put(&self.entries.to_le_bytes());
        writer.put(&self.names_bytes.to_le_bytes());
        writer.put(&self.file_bytes.to_le_bytes());
        writer.put(&self.written_ns.to_le_bytes());
        writer.put(&self.identity_checksum.to_le_bytes());
        let end = HEADER_BYTES - 8;
        let sum = checksum(&bytes[..end]);
        bytes[end..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Decodes a header whose magic and format the caller has checked; `None` if it is damaged.
    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let end = HEADER_BYTES - 8;
        if u64_at(bytes, end) != checksum(&bytes[..end]) {
            return None;
        }
        Some(Self {
            identity_bytes: u32_at(bytes, 12),
            slots: u32_at(bytes, 16),
            entries: u32_at(bytes, 20),
            names_bytes: u64_at(bytes, 24),
            file_bytes: u64_at(bytes, 32),
            written_ns: u64_at(bytes, 40).cast_signed(),
            identity_checksum: u64_at(bytes, 48),
        })
    }
}

impl Record {
    pub(crate) fn encode(&self, name: &[u8]) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        let mut writer = Writer { bytes: &mut bytes, at: 0 };
        writer.put(&self.hash.to_le_bytes());
        writer.put(&self.name_at.to_le_bytes());
        writer.put(&self.name_bytes.to_le_bytes());
        writer.put(&self.kind.to_le_bytes());
        writer.put(&self.flags.to_le_bytes());
        writer.put(&self.stamp.size.to_le_bytes());
        writer.put(&self.stamp.mtime_ns.to_le_bytes());
        writer.put(&self.stamp.ctime_ns.to_le_bytes());
        writer.put(&self.stamp.inode.to_le_bytes());
        writer.put(&self.data_at.to_le_bytes());
        writer.put(&self.data_bytes.to_le_bytes());
        writer.put(&self.data_checksum.to_le_bytes());
        let end = RECORD_BYTES - 8;
        let sum = record_checksum(&bytes[..end], name);
        bytes[end..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Decodes the fields without any check; see [`is_intact`](Self::is_intact).
    pub(crate) fn decode(bytes: &[u8; RECORD_BYTES]) -> Self {
        Self {
            hash: u64_at(bytes, 0),
            name_at: u32_at(bytes, 8),
            name_bytes: u32_at(bytes, 12),
            kind: u32_at(bytes, 16),
            flags: u32_at(bytes, 20),
            stamp: Stamp {
                size: u64_at(bytes, 24),
                mtime_ns: u64_at(bytes, 32).cast_signed(),
                ctime_ns: u64_at(bytes, 40).cast_signed(),
                inode: u64_at(bytes, 48),
            },
            data_at: u64_at(bytes, 56),
            data_bytes: u64_at(bytes, 64),
            data_checksum: u64_at(bytes, 72),
        }
    }

    /// Whether a stored record and its name match the record's checksum.
    pub(crate) fn is_intact(bytes: &[u8; RECORD_BYTES], name: &[u8]) -> bool {
        let end = RECORD_BYTES - 8;
        u64_at(bytes, end) == record_checksum(&bytes[..end], name)
    }
}

/// Hashes a name. The kind is the seed, so that equal names of different kinds have different hashes.
pub(crate) fn hash(kind: u32, name: &[u8]) -> u64 {
    xxh3_64_with_seed(name, u64::from(kind))
}

pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

fn record_checksum(record: &[u8], name: &[u8]) -> u64 {
    xxh3_64_with_seed(record, xxh3_64(name))
}

/// Returns the number at `at`; 0 beyond the end, so that no caller can panic.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |four| u32::from_le_bytes(*four))
}

/// Returns the number at `at`; 0 beyond the end.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .map_or(0, |eight| u64::from_le_bytes(*eight))
}

/// Writes consecutive fields.
struct Writer<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, field: &[u8]) {
        self.bytes[self.at..self.at + field.len()].copy_from_slice(field);
        self.at += field.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let header = Header {
            identity_bytes: 1,
            slots: 8,
            entries: 3,
            names_bytes: 4,
            file_bytes: 5,
            written_ns: -6,
            identity_checksum: 7,
        };
        assert_eq!(Header::decode(&header.encode()), Some(header));
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let stamp = Stamp { size: 7, mtime_ns: -8, ctime_ns: 9, inode: 10 };
        let record = Record {
            hash: 1,
            name_at: 2,
            name_bytes: 3,
            kind: 4,
            flags: 5,
            stamp,
            data_at: 11,
            data_bytes: 12,
            data_checksum: 13,
        };
        let bytes = record.encode(b"abc");
        assert_eq!(Record::decode(&bytes), record);
        assert!(Record::is_intact(&bytes, b"abc"));
        assert!(!Record::is_intact(&bytes, b"abx"));
    }

    #[test]
    fn counts_beyond_the_limits_have_no_sections() {
        let header = Header {
            identity_bytes: 0,
            slots: 4,
            entries: 2,
            names_bytes: 0,
            file_bytes: 0,
            written_ns: 0,
            identity_checksum: 0,
        };
        assert!(header.sections().is_some());
        assert!(Header { slots: 3, ..header }.sections().is_none());
        assert!(Header { entries: 4, ..header }.sections().is_none());
        assert!(Header { slots: 1 << 31, ..header }.sections().is_none());
        assert!(Header { names_bytes: u64::MAX, ..header }.sections().is_none());
        assert!(Header { identity_bytes: u32::MAX, ..header }.sections().is_none());
    }
}
