//! The names of a merged folder, each with the branch that provides the file.
//!
//! A name takes some 50 bytes. The order of names never changes, so that a listing can continue while names are added
//! and removed.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

/// The index is compacted if it has more removed names than this and they are the majority.
const REMOVED_MAX: usize = 64;

/// The type of a name that is hidden (the kernel's type of a whiteout).
pub(crate) const WHITEOUT: u8 = 14;

/// The file of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The first branch that has the name.
    pub(crate) branch: u16,
    /// Whether later branches may have the name as well.
    pub(crate) more: bool,
    /// The file type: `mode >> 12`.
    pub(crate) kind: u8,
    /// The inode number.
    pub(crate) number: u64,
}

#[derive(Debug, Clone)]
struct Slot {
    start: u32,
    /// The length of the name; zero for a removed name.
    length: u8,
    sequence: u32,
    entry: Entry,
    /// Whether the name was inserted since the last [`Index::begin`].
    seen: bool,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Index {
    /// Positions in `slots`, by name.
    table: HashTable<u32>,
    /// In the order of their sequence numbers.
    slots: Vec<Slot>,
    bytes: Vec<u8>,
    removed: usize,
    next_sequence: u32,
    /// Seeded at random, since users choose the names and must not be able to cause collisions.
    hasher: RandomState,
}

impl Index {
    pub(crate) fn find(&self, name: &[u8]) -> Option<Entry> {
        Some(self.slots[self.position(name)?].entry)
    }

    /// Inserts a name of a branch. Branches have to be inserted in the order of precedence. Returns `true` if the name
    /// now refers to another file.
    pub(crate) fn insert(&mut self, name: &[u8], branch: u16, kind: u8, number: u64) -> bool {
        let Some(position) = self.position(name) else {
            self.append(name, Entry { branch, more: false, kind, number });
            return true;
        };
        let slot = &mut self.slots[position];
        let before = slot.entry;
        if !std::mem::replace(&mut slot.seen, true) {
            slot.entry = Entry { branch, more: false, kind, number };
        } else if branch == before.branch {
            slot.entry = Entry { branch, more: before.more, kind, number };
        } else {
            slot.entry.more = true;
        }
        (before.branch, before.number) != (slot.entry.branch, slot.entry.number)
    }

    /// Replaces the entry of a name.
    pub(crate) fn replace(&mut self, name: &[u8], entry: Entry) {
        match self.position(name) {
            Some(position) => self.slots[position].entry = entry,
            None => self.append(name, entry),
        }
    }

    pub(crate) fn remove(&mut self, name: &[u8]) {
        let Some(position) = self.position(name) else { return };
        let hash = self.hash(name);
        if let Ok(found) = self.table.find_entry(hash, |&other| other as usize == position) {
            found.remove();
        }
        self.slots[position].length = 0;
        self.removed += 1;
        if self.removed > REMOVED_MAX && self.removed * 2 > self.slots.len() {
            self.compact();
        }
    }

    /// Returns the names after this sequence number, each with its own sequence number.
    pub(crate) fn after(&self, sequence: u32) -> impl Iterator<Item = (u32, &[u8], &Entry)> {
        let first = self.slots.partition_point(|slot| slot.sequence <= sequence);
        self.slots[first..]
            .iter()
            .filter(|slot| slot.length > 0)
            .map(|slot| (slot.sequence, self.bytes_of(slot), &slot.entry))
    }

    /// Begins a rebuild. The caller inserts all names again; names that stay keep their order.
    pub(crate) fn begin(&mut self) {
        self.slots.iter_mut().for_each(|slot| slot.seen = false);
    }

    /// Ends a rebuild by removing the names that were not inserted since [`begin`](Self::begin).
    pub(crate) fn end(&mut self) {
        let unseen = |slot: &&Slot| slot.length > 0 && !slot.seen;
        let gone: Vec<_> =
            self.slots.iter().filter(unseen).map(|slot| self.bytes_of(slot).to_vec()).collect();
        gone.iter().for_each(|name| self.remove(name));
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.removed
    }

    fn append(&mut self, name: &[u8], entry: Entry) {
        // Names are 1 to 255 bytes long, and no folder holds 4 GiB of names.
        let (Ok(length), Ok(start)) = (u8::try_from(name.len()), u32::try_from(self.bytes.len()))
        else {
            return;
        };
        self.next_sequence += 1;
        let slot = Slot { start, length, sequence: self.next_sequence, entry, seen: true };
        self.bytes.extend_from_slice(name);
        self.slots.push(slot);
        self.link(self.slots.len() - 1);
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "as many as bytes, which are counted in u32"
    )]
    fn link(&mut self, position: usize) {
        let hash = self.hasher.hash_one(self.name(position));
        let Self { table, slots, bytes, hasher, .. } = self;
        let name = |&other: &u32| {
            let slot = &slots[other as usize];
            let start = slot.start as usize;
            hasher.hash_one(&bytes[start..start + usize::from(slot.length)])
        };
        table.insert_unique(hash, position as u32, name);
    }

    fn compact(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        self.slots.retain(|slot| slot.length > 0);
        for slot in &mut self.slots {
            let start = slot.start as usize;
            slot.start = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
            self.bytes.extend_from_slice(&bytes[start..start + usize::from(slot.length)]);
        }
        self.removed = 0;
        self.table.clear();
        (0..self.slots.len()).for_each(|position| self.link(position));
    }

    fn position(&self, name: &[u8]) -> Option<usize> {
        let same = |&position: &u32| self.name(position as usize) == name;
        self.table.find(self.hash(name), same).map(|&position| position as usize)
    }

    fn hash(&self, name: &[u8]) -> u64 {
        self.hasher.hash_one(name)
    }

    fn name(&self, position: usize) -> &[u8] {
        self.bytes_of(&self.slots[position])
    }

    fn bytes_of(&self, slot: &Slot) -> &[u8] {
        let start = slot.start as usize;
        &self.bytes[start..start + usize::from(slot.length)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(index: &Index) -> Vec<&str> {
        index.after(0).map(|(_, name, _)| std::str::from_utf8(name).unwrap()).collect()
    }

    #[test]
    fn the_first_branch_that_has_a_name_wins() {
        let mut index = Index::default();
        assert!(index.insert(b"a", 3, 8, 30));
        assert!(!index.insert(b"a", 5, 8, 50));
        assert_eq!(index.find(b"a"), Some(Entry { branch: 3, more: true, kind: 8, number: 30 }));
        assert!(!index.insert(b"a", 1, 4, 10));
        assert_eq!(index.find(b"a"), Some(Entry { branch: 3, more: true, kind: 8, number: 30 }));
        assert_eq!(index.find(b"b"), None);
    }

    #[test]
    fn a_listing_continues_while_names_come_and_go() {
        let mut index = Index::default();
        for number in 0..500u32 {
            index.insert(format!("{number:03}").as_bytes(), 0, 8, 0);
        }
        let (place, _, _) = index.after(0).nth(249).unwrap();
        (0..400).for_each(|number| index.remove(format!("{number:03}").as_bytes()));
        index.insert(b"new", 0, 8, 0);
        assert_eq!(index.len(), 101);
        let rest: Vec<_> = index.after(place).map(|(_, name, _)| name.to_vec()).collect();
        assert_eq!(
            (rest.len(), rest[0].as_slice(), rest[100].as_slice()),
            (101, b"400".as_slice(), b"new".as_slice())
        );
        assert_eq!(index.find(b"450").map(|entry| entry.branch), Some(0));
    }

    #[test]
    fn a_rebuild_keeps_the_order_and_removes_the_other_names() {
        let mut index = Index::default();
        for name in [b"a", b"b", b"c"] {
            index.insert(name, 2, 8, 1);
        }
        index.begin();
        index.insert(b"c", 4, 8, 7);
        index.insert(b"d", 0, 8, 1);
        index.insert(b"a", 0, 8, 9);
        index.end();
        assert_eq!(names(&index), ["a", "c", "d"]);
        assert_eq!(index.find(b"c"), Some(Entry { branch: 4, more: false, kind: 8, number: 7 }));
    }

    #[test]
    fn a_name_takes_less_than_200_bytes() {
        let mut index = Index::default();
        const NAMES: usize = 211 * 40;
        for number in 0..NAMES {
            index.insert(format!("feature_number_{number}.rb").as_bytes(), 0, 8, 0);
        }
        let bytes = index.bytes.capacity()
            + index.slots.capacity() * size_of::<Slot>()
            + index.table.capacity() * (size_of::<u32>() + 1) * 8 / 7;
        assert!(bytes / NAMES < 200, "{}", bytes / NAMES);
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_plain_list_of_names(
            operations in proptest::collection::vec((0u8..3, 0u8..40, 0u16..4), 0..600),
        ) {
            let mut index = Index::default();
            let mut known = std::collections::BTreeMap::<u8, u16>::new();
            for (operation, name, branch) in operations {
                let text = format!("name {name}");
                if operation == 0 {
                    index.remove(text.as_bytes());
                    known.remove(&name);
                } else {
                    index.insert(text.as_bytes(), branch, 8, 0);
                    known.entry(name).or_insert(branch);
                }
            }
            prop_assert_eq!(index.len(), known.len());
            prop_assert_eq!(index.after(0).count(), known.len());
            for (name, branch) in known {
                let entry = index.find(format!("name {name}").as_bytes());
                prop_assert_eq!(entry.map(|entry| entry.branch), Some(branch));
            }
        }
    }
}
