//! Builds the bytes of a pack.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::layout::{
    ALIGNMENT, ENTRIES_MAX, HEADER_BYTES, Header, PACK_BYTES_MAX, Record, checksum, hash,
};
use crate::{Entry, Stamp};

/// The entries of a new pack.
///
/// Equal contents give equal bytes, whatever the order of insertion.
#[derive(Debug)]
pub struct Builder<'a> {
    identity: Vec<u8>,
    items: BTreeMap<(u32, Cow<'a, [u8]>), Item<'a>>,
}

/// The stamp, flags and data of an entry that is going to be written.
#[derive(Debug, Clone)]
pub struct Item<'a> {
    stamp: Stamp,
    flags: u32,
    data: Cow<'a, [u8]>,
}

impl<'a> Item<'a> {
    /// Creates an item whose data was derived from a file with this stamp.
    pub fn new(stamp: Stamp, data: impl Into<Cow<'a, [u8]>>) -> Self {
        Self { stamp, flags: 0, data: data.into() }
    }

    /// Sets the flags.
    #[must_use]
    pub fn flags(mut self, flags: u32) -> Self {
        self.flags = flags;
        self
    }
}

impl<'a> Builder<'a> {
    /// Creates an empty pack with this identity.
    #[must_use]
    pub fn new(identity: &[u8]) -> Self {
        Self { identity: identity.to_vec(), items: BTreeMap::new() }
    }

    /// Inserts an item. Replaces an item with the same kind and name.
    pub fn insert(&mut self, kind: u32, name: impl Into<Cow<'a, [u8]>>, item: Item<'a>) {
        self.items.insert((kind, name.into()), item);
    }

    /// Copies an entry of another pack, unless its data is damaged or the new pack has an entry of that kind and name.
    pub fn keep(&mut self, entry: &Entry<'a>) {
        self.keep_as(entry, entry.stamp());
    }

    /// Like [`keep`](Self::keep), with a different stamp.
    pub fn keep_as(&mut self, entry: &Entry<'a>, stamp: Stamp) {
        let Some(data) = entry.data() else { return };
        let item = Item::new(stamp, data).flags(entry.flags());
        self.items.entry((entry.kind(), entry.name().into())).or_insert(item);
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns the bytes of the pack, with `now_ns` (nanoseconds since 1970) as its time of writing; `None`
    /// if a limit of [`layout`](crate::layout) is exceeded.
    #[must_use]
    pub fn finish(&self, now_ns: i64) -> Option<Vec<u8>> {
        let names_bytes: usize = self.items.keys().map(|(_, name)| name.len()).sum();
        let slots = ((self.items.len() + 1) * 2).next_power_of_two();
        let mut header = Header {
            identity_bytes: u32::try_from(self.identity.len()).ok()?,
            slots: u32::try_from(slots).ok()?,
            entries: u32::try_from(self.items.len()).ok()?,
            names_bytes: names_bytes as u64,
            file_bytes: 0,
            written_ns: now_ns,
            identity_checksum: checksum(&self.identity),
        };
        let sections = header.sections()?;
        let data: usize =
            self.items.values().map(|item| item.data.len().next_multiple_of(ALIGNMENT)).sum();
        let length = sections.data + data;
        if self.items.len() > ENTRIES_MAX || length > PACK_BYTES_MAX {
            return None;
        }
        header.file_bytes = length as u64;
        let mut bytes = vec![0; length];
        put(&mut bytes, 0, &header.encode());
        put(&mut bytes, HEADER_BYTES, &self.identity);
        self.fill(&mut bytes, &header);
        Some(bytes)
    }

    /// Fills in slots, entries, names and data.
    fn fill(&self, bytes: &mut [u8], header: &Header) {
        let Some(sections) = header.sections() else { return };
        let (mut name_at, mut data_at) = (0, sections.data);
        for (place, ((kind, name), item)) in self.items.iter().enumerate() {
            let record = Record {
                hash: hash(*kind, name),
                // Both casts are lossless: all names together take less than PACK_BYTES_MAX.
                name_at: name_at as u32,
                name_bytes: name.len() as u32,
                kind: *kind,
                flags: item.flags,
                stamp: item.stamp,
                data_at: data_at as u64,
                data_bytes: item.data.len() as u64,
                data_checksum: checksum(&item.data),
            };
            let stored = record.encode(name);
            put(bytes, sections.entries + place * stored.len(), &stored);
            put(bytes, sections.names + name_at, name);
            put(bytes, data_at, &item.data);
            put_in_slot(&mut bytes[sections.slots..], header.slots, record.hash, place);
            name_at += name.len();
            data_at += item.data.len().next_multiple_of(ALIGNMENT);
        }
    }
}

fn put(bytes: &mut [u8], at: usize, part: &[u8]) {
    bytes[at..at + part.len()].copy_from_slice(part);
}

/// Puts the entry at `place` into the first empty slot. At least half of the slots are empty, so the loop
/// ends.
fn put_in_slot(table: &mut [u8], slots: u32, hash: u64, place: usize) {
    let mask = slots as usize - 1;
    let mut slot = hash as usize & mask;
    while table[slot * 4..slot * 4 + 4] != [0; 4] {
        slot = (slot + 1) & mask;
    }
    put(table, slot * 4, &(place as u32 + 1).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pack;

    fn item(text: &str) -> Item<'_> {
        Item::new(Stamp::default(), text.as_bytes())
    }

    #[test]
    fn the_order_of_insertion_does_not_matter() {
        let (mut one, mut other) = (Builder::new(b"x"), Builder::new(b"x"));
        one.insert(1, b"a".as_slice(), item("1"));
        one.insert(1, b"b".as_slice(), item("2"));
        other.insert(1, b"b".as_slice(), item("2"));
        other.insert(1, b"a".as_slice(), item("1"));
        assert_eq!(one.finish(3), other.finish(3));
    }

    #[test]
    fn a_new_item_wins_over_a_kept_one() {
        let mut old = Builder::new(b"x");
        old.insert(1, b"a".as_slice(), item("old"));
        old.insert(1, b"b".as_slice(), item("kept").flags(9));
        let old = old.finish(0).unwrap();
        let old = Pack::from_bytes(&old).unwrap();
        let mut new = Builder::new(b"x");
        new.insert(1, b"a".as_slice(), item("new"));
        old.entries().for_each(|entry| new.keep(&entry));
        let new = new.finish(0).unwrap();
        let new = Pack::from_bytes(&new).unwrap();
        assert_eq!(new.find(1, b"a").unwrap().data().unwrap(), b"new");
        let kept = new.find(1, b"b").unwrap();
        assert_eq!((kept.data().unwrap(), kept.flags()), (&b"kept"[..], 9));
    }

    #[test]
    fn ten_thousand_entries_are_all_found() {
        let mut builder = Builder::new(b"");
        for n in 0..10_000u32 {
            builder.insert(
                n % 3,
                n.to_string().into_bytes(),
                Item::new(Stamp::default(), vec![7; 3]),
            );
        }
        let bytes = builder.finish(0).unwrap();
        let pack = Pack::from_bytes(&bytes).unwrap();
        assert_eq!((pack.entries().count(), pack.damages()), (10_000, Vec::new()));
    }
}
