//! Connections by number, in a generational slab: a late event or a late response never meets another connection.

/// The number of a connection: its slot, and the slot's generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ConnectionId {
    slot: u32,
    generation: u32,
}

impl ConnectionId {
    /// As one word, for the kernel to keep.
    pub(crate) fn to_word(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }

    pub(crate) fn from_word(word: u64) -> Self {
        let low = |word: u64| u32::try_from(word & u64::from(u32::MAX)).unwrap_or(0);
        Self { slot: low(word), generation: low(word >> 32) }
    }

    /// Its slot, which is the same in the run queue and the timer wheel.
    pub(crate) fn slot(self) -> u32 {
        self.slot
    }
}

/// A growing table of slots. Free slots are taken again, the last one first; the generation of a slot counts that.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn insert(&mut self, value: T) -> ConnectionId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry { generation: 0, value: None });
            u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX)
        });
        let entry = &mut self.entries[slot as usize];
        entry.value = Some(value);
        ConnectionId { slot, generation: entry.generation }
    }

    pub(crate) fn get(&self, id: ConnectionId) -> Option<&T> {
        let entry = self.entries.get(id.slot as usize)?;
        entry.value.as_ref().filter(|_| entry.generation == id.generation)
    }

    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut T> {
        let entry = self.entries.get_mut(id.slot as usize)?;
        entry.value.as_mut().filter(|_| entry.generation == id.generation)
    }

    pub(crate) fn remove(&mut self, id: ConnectionId) -> Option<T> {
        let entry = self.entries.get_mut(id.slot as usize)?;
        if entry.generation != id.generation {
            return None;
        }
        let value = entry.value.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(id.slot);
        Some(value)
    }

    /// The key of whatever is at `slot` now.
    pub(crate) fn id_at(&self, slot: u32) -> Option<ConnectionId> {
        let entry = self.entries.get(slot as usize)?;
        entry.value.as_ref().map(|_| ConnectionId { slot, generation: entry.generation })
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = ConnectionId> + '_ {
        (0..self.entries.len()).filter_map(|slot| self.id_at(u32::try_from(slot).ok()?))
    }
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
    fn a_key_survives_as_a_word() {
        let id = ConnectionId { slot: 7, generation: u32::MAX };
        assert_eq!(ConnectionId::from_word(id.to_word()), id);
    }
}
