//! Connections by number, in a generational slab: a late event or response never reaches another connection.

use std::ops::{Index, IndexMut};

/// The number of a connection: its slot, and the slot's generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct EntryId {
    slot: u32,
    generation: u32,
}

impl EntryId {
    /// Packs the number into one word, for the kernel to keep.
    pub(crate) fn to_word(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }

    pub(crate) fn from_word(word: u64) -> Self {
        let low = |word: u64| u32::try_from(word & u64::from(u32::MAX)).unwrap_or(0);
        Self { slot: low(word), generation: low(word >> 32) }
    }

    /// The slot, which is the same in the run queue and the timer wheel.
    pub(crate) fn slot(self) -> u32 {
        self.slot
    }
}

/// A growing table of slots. The slot that was freed last is reused first, and each reuse has a new generation.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    entries: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn insert(&mut self, value: T) -> EntryId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Slot { generation: 0, value: None });
            u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX)
        });
        let entry = &mut self.entries[slot as usize];
        entry.value = Some(value);
        EntryId { slot, generation: entry.generation }
    }

    pub(crate) fn get(&self, id: EntryId) -> Option<&T> {
        let entry = self.entries.get(id.slot as usize)?;
        entry.value.as_ref().filter(|_| entry.generation == id.generation)
    }

    pub(crate) fn get_mut(&mut self, id: EntryId) -> Option<&mut T> {
        let entry = self.entries.get_mut(id.slot as usize)?;
        entry.value.as_mut().filter(|_| entry.generation == id.generation)
    }

    pub(crate) fn remove(&mut self, id: EntryId) -> Option<T> {
        let entry = self.entries.get_mut(id.slot as usize)?;
        if entry.generation != id.generation {
            return None;
        }
        let value = entry.value.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(id.slot);
        Some(value)
    }

    /// The key of the value in `slot`, which must not be empty: queues hold the slots of open entries only.
    pub(crate) fn occupant(&self, slot: u32) -> EntryId {
        self.id_at(slot).unwrap_or_else(|| panic!("slot {slot} was enqueued and is empty"))
    }

    /// The key of the current value in `slot`.
    pub(crate) fn id_at(&self, slot: u32) -> Option<EntryId> {
        let entry = self.entries.get(slot as usize)?;
        entry.value.as_ref().map(|_| EntryId { slot, generation: entry.generation })
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = EntryId> + '_ {
        (0..self.entries.len()).filter_map(|slot| self.id_at(u32::try_from(slot).ok()?))
    }
}

/// The value of a key that the caller knows to be valid.
impl<T> Index<EntryId> for Slab<T> {
    type Output = T;

    fn index(&self, id: EntryId) -> &T {
        self.get(id).unwrap_or_else(|| closed(id))
    }
}

impl<T> IndexMut<EntryId> for Slab<T> {
    fn index_mut(&mut self, id: EntryId) -> &mut T {
        self.get_mut(id).unwrap_or_else(|| closed(id))
    }
}

#[cold]
fn closed(id: EntryId) -> ! {
    panic!("entry {id:?} is used after it was closed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_does_not_reach_the_next_one_at_its_place() {
        let mut slab = Slab::new();
        let first = slab.insert('a');
        assert_eq!(slab.remove(first), Some('a'));
        let second = slab.insert('b');
        assert_eq!(second.slot(), first.slot());
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.get_mut(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get(second), Some(&'b'));
        assert_eq!((slab.len(), slab.id_at(0)), (1, Some(second)));
    }

    #[test]
    #[should_panic(expected = "is used after it was closed")]
    fn a_key_that_must_be_valid_says_so_when_it_is_not() {
        let mut slab = Slab::new();
        let first = slab.insert('a');
        slab.remove(first);
        let _ = slab[first];
    }

    #[test]
    #[should_panic(expected = "slot 0 was enqueued and is empty")]
    fn an_enqueued_slot_is_never_empty() {
        Slab::<char>::new().occupant(0);
    }

    #[test]
    fn a_key_survives_as_a_word() {
        let id = EntryId { slot: 7, generation: u32::MAX };
        assert_eq!(EntryId::from_word(id.to_word()), id);
    }
}
