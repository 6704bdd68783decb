//! Look-ups in the bytes of a pack. Damage never causes anything worse than a miss.

use thruway_sys::printable;

use crate::Stamp;
use crate::error::Kind;
use crate::layout::{
    ALIGNMENT, FORMAT, HEADER_BYTES, Header, MAGIC, RECORD_BYTES, Record, Sections, checksum, hash,
    u32_at,
};

/// The bytes of a pack whose header has been checked.
#[derive(Debug, Clone, Copy)]
pub struct Pack<'a> {
    bytes: &'a [u8],
    layout: Layout,
}

/// The checked header of a pack, with the offsets that follow from it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    header: Header,
    sections: Sections,
}

/// An entry whose record and name have been checked. The data is checked by [`data`](Self::data).
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    bytes: &'a [u8],
    record: Record,
    name: &'a [u8],
}

impl Layout {
    pub(crate) fn of(bytes: &[u8]) -> Result<Self, Kind> {
        let start = bytes.first_chunk::<HEADER_BYTES>().ok_or(Kind::NotAPack)?;
        if start[..MAGIC.len()] != MAGIC {
            return Err(Kind::NotAPack);
        }
        let format = u32_at(start, MAGIC.len());
        if format != FORMAT {
            return Err(Kind::OtherFormat(format));
        }
        let header = Header::decode(start).ok_or(Kind::Damaged("the header's checksum"))?;
        let sections = header.sections().ok_or(Kind::Damaged("the header's counts"))?;
        if header.file_bytes != bytes.len() as u64 || sections.data > bytes.len() {
            return Err(Kind::Damaged("the length"));
        }
        let layout = Self { header, sections };
        if checksum(Pack::new(bytes, layout).identity()) != header.identity_checksum {
            return Err(Kind::Damaged("the identity's checksum"));
        }
        Ok(layout)
    }

    /// The offset of the data.
    pub(crate) fn data_at(&self) -> usize {
        self.sections.data
    }
}

impl<'a> Pack<'a> {
    /// Creates a pack of bytes with this layout. If the layout belongs to other bytes, look-ups are safe but find
    /// nothing.
    pub(crate) fn new(bytes: &'a [u8], layout: Layout) -> Self {
        Self { bytes, layout }
    }

    /// Reads a pack from memory.
    ///
    /// # Errors
    /// The bytes are not an intact pack of this format.
    pub fn from_bytes(bytes: &'a [u8]) -> Result<Self, crate::Error> {
        Layout::of(bytes)
            .map(|layout| Self::new(bytes, layout))
            .map_err(|kind| crate::Error::new("(memory)".as_ref(), kind))
    }

    /// The identity: whatever the pack's writer and reader must have in common.
    #[must_use]
    pub fn identity(&self) -> &'a [u8] {
        let length = self.layout.header.identity_bytes as usize;
        self.bytes.get(HEADER_BYTES..HEADER_BYTES + length).unwrap_or_default()
    }

    /// The time of writing, in nanoseconds since 1970.
    #[must_use]
    pub fn written_ns(&self) -> i64 {
        self.layout.header.written_ns
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.layout.header.entries as usize
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.layout.header.entries == 0
    }

    /// The size of the file, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the entry with this kind and name. A damaged entry counts as missing.
    #[must_use]
    pub fn find(&self, kind: u32, name: &[u8]) -> Option<Entry<'a>> {
        let wanted = hash(kind, name);
        let slots = self.layout.header.slots as usize;
        // The cast may truncate, because the mask only keeps the low bits.
        let mut slot = wanted as usize & (slots - 1);
        for _ in 0..slots {
            let place = u32_at(self.bytes, self.layout.sections.slots + slot * 4).checked_sub(1)?;
            let record = self.record(place as usize)?;
            if record.hash == wanted && record.kind == kind && self.name(&record)? == name {
                return self.entry(place as usize);
            }
            slot = (slot + 1) & (slots - 1);
        }
        None
    }

    /// Returns all intact entries, ordered by kind and name.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'a>> {
        let pack = *self;
        (0..self.len()).filter_map(move |place| pack.entry(place))
    }

    /// Returns the entry with this index, if it is intact.
    #[must_use]
    pub fn entry(&self, place: usize) -> Option<Entry<'a>> {
        let record = self.record(place)?;
        let name = self.name(&record)?;
        let stored = self.stored(place)?;
        Record::is_intact(stored, name).then_some(Entry { bytes: self.bytes, record, name })
    }

    /// Describes each damage; empty for an intact pack.
    #[must_use]
    pub fn damages(&self) -> Vec<String> {
        let mut damages = Vec::new();
        for place in 0..self.len() {
            let Some(entry) = self.entry(place) else {
                damages.push(format!("entry {place}"));
                continue;
            };
            let name = printable::bytes(entry.name);
            if entry.data().is_none() {
                damages.push(format!("data of {name}"));
            }
            if self.find(entry.kind(), entry.name).is_none_or(|found| found.name != entry.name) {
                damages.push(format!("no slot leads to {name}"));
            }
        }
        damages
    }

    fn stored(&self, place: usize) -> Option<&'a [u8; RECORD_BYTES]> {
        if place >= self.len() {
            return None;
        }
        self.bytes.get(self.layout.sections.entries + place * RECORD_BYTES..)?.first_chunk()
    }

    fn record(&self, place: usize) -> Option<Record> {
        self.stored(place).map(Record::decode)
    }

    fn name(&self, record: &Record) -> Option<&'a [u8]> {
        let start = self.layout.sections.names + record.name_at as usize;
        let end = start + record.name_bytes as usize;
        if end > self.layout.sections.data { None } else { self.bytes.get(start..end) }
    }
}

impl<'a> Entry<'a> {
    /// The kind, in the writer's numbering.
    #[must_use]
    pub fn kind(&self) -> u32 {
        self.record.kind
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &'a [u8] {
        self.name
    }

    /// The entry's flags, whose meaning the pack's writer defines.
    #[must_use]
    pub fn flags(&self) -> u32 {
        self.record.flags
    }

    /// The stamp of the file that the entry was derived from.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        self.record.stamp
    }

    /// The length of the data, in bytes.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.record.data_bytes
    }

    /// Returns the data, which starts at a multiple of 16 in the file; `None` if the data is damaged. Every
    /// call reads all of the data for its checksum.
    #[must_use]
    pub fn data(&self) -> Option<&'a [u8]> {
        let start = usize::try_from(self.record.data_at).ok()?;
        let end = start.checked_add(usize::try_from(self.record.data_bytes).ok()?)?;
        let data = self.bytes.get(start..end)?;
        let sound = start.is_multiple_of(ALIGNMENT) && checksum(data) == self.record.data_checksum;
        sound.then_some(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Builder, Item};
    use proptest::prelude::*;

    const STAMP: Stamp = Stamp { size: 3, mtime_ns: 1, ctime_ns: 2, inode: 4 };

    fn small() -> Vec<u8> {
        let mut builder = Builder::new(b"ruby 3.1");
        for name in ["/a.rb", "/b.rb", "/c.rb"] {
            builder.insert(1, name.as_bytes(), Item::new(STAMP, name.repeat(9).into_bytes()));
        }
        builder.insert(2, b"/a.rb", Item::new(STAMP, Vec::new()).flags(7));
        builder.finish(5).unwrap()
    }

    #[test]
    fn entries_are_found_by_kind_and_name() {
        let bytes = small();
        let pack = Pack::from_bytes(&bytes).unwrap();
        assert_eq!((pack.identity(), pack.written_ns(), pack.len()), (&b"ruby 3.1"[..], 5, 4));
        let entry = pack.find(1, b"/b.rb").unwrap();
        assert_eq!((entry.stamp(), entry.flags()), (STAMP, 0));
        assert_eq!(entry.data().unwrap(), "/b.rb".repeat(9).as_bytes());
        assert_eq!(pack.find(2, b"/a.rb").unwrap().flags(), 7);
        assert!(pack.find(2, b"/b.rb").is_none());
        assert!(pack.find(1, b"/d.rb").is_none());
        assert!(pack.damages().is_empty());
    }

    #[test]
    fn data_is_aligned() {
        let bytes = small();
        let pack = Pack::from_bytes(&bytes).unwrap();
        for entry in pack.entries() {
            let start = entry.data().unwrap().as_ptr() as usize - bytes.as_ptr() as usize;
            assert!(start.is_multiple_of(ALIGNMENT));
        }
    }

    #[test]
    fn an_empty_pack_is_a_pack() {
        let bytes = Builder::new(b"").finish(0).unwrap();
        let pack = Pack::from_bytes(&bytes).unwrap();
        assert!(pack.is_empty() && pack.find(1, b"").is_none());
    }

    /// Whether every answer of the pack equals an entry that was inserted.
    fn tells_the_truth(pack: &Pack<'_>) -> bool {
        pack.entries().all(|entry| match entry.data() {
            Some(data) if entry.kind() == 1 => data == entry.name().repeat(9),
            Some(data) => entry.kind() == 2 && data.is_empty() && entry.flags() == 7,
            None => true,
        })
    }

    #[test]
    fn every_flipped_bit_is_an_error_or_a_miss_and_never_another_answer() {
        let original = small();
        let names: [&[u8]; 4] = [b"/a.rb", b"/b.rb", b"/c.rb", b"/d.rb"];
        for at in 0..original.len() * 8 {
            let mut bytes = original.clone();
            bytes[at / 8] ^= 1 << (at % 8);
            let Ok(pack) = Pack::from_bytes(&bytes) else { continue };
            assert!(tells_the_truth(&pack), "bit {at}");
            for name in names {
                let data = pack.find(1, name).and_then(|entry| entry.data());
                assert!(data.is_none_or(|data| data == name.repeat(9)), "bit {at}");
            }
        }
    }

    #[test]
    fn every_truncation_is_an_error() {
        let bytes = small();
        for length in 0..bytes.len() {
            assert!(Pack::from_bytes(&bytes[..length]).is_err(), "{length}");
        }
    }

    /// Forges a pack: its checksums are right, but a number is arbitrary.
    fn forge(mut bytes: Vec<u8>, at: usize, value: u64) -> Vec<u8> {
        let at = at % (bytes.len() - 8);
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        let end = HEADER_BYTES - 8;
        let sum = checksum(&bytes[..end]);
        bytes[end..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    proptest! {
        #[test]
        fn forged_numbers_never_panic(at in 0usize..4096, value: u64) {
            let bytes = forge(small(), at, value);
            if let Ok(pack) = Pack::from_bytes(&bytes) {
                prop_assert!(pack.damages().len() <= 2 * pack.len());
                pack.find(1, b"/a.rb").and_then(|entry| entry.data());
            }
        }

        #[test]
        fn any_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            prop_assert!(Pack::from_bytes(&bytes).is_err());
        }
    }
}
