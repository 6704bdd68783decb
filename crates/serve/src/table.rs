//! Connections by number, so that a late event or a late answer never meets another connection.

/// The number of a connection: its place, and how often the place has been taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    place: u32,
    generation: u32,
}

impl Key {
    /// As one word, for the kernel to keep.
    pub(crate) fn to_word(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.place)
    }

    pub(crate) fn from_word(word: u64) -> Self {
        let low = |word: u64| u32::try_from(word & u64::from(u32::MAX)).unwrap_or(0);
        Self { place: low(word), generation: low(word >> 32) }
    }

    /// Its place in tables that run beside this one.
    pub(crate) fn place(self) -> u32 {
        self.place
    }
}

/// A growing table whose free places are taken again, the last one first.
#[derive(Debug)]
pub(crate) struct Table<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Table<T> {
    pub(crate) fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn insert(&mut self, value: T) -> Key {
        let place = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry { generation: 0, value: None });
            u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX)
        });
        let entry = &mut self.entries[place as usize];
        entry.value = Some(value);
        Key { place, generation: entry.generation }
    }

    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let entry = self.entries.get(key.place as usize)?;
        entry.value.as_ref().filter(|_| entry.generation == key.generation)
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let entry = self.entries.get_mut(key.place as usize)?;
        entry.value.as_mut().filter(|_| entry.generation == key.generation)
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let entry = self.entries.get_mut(key.place as usize)?;
        if entry.generation != key.generation {
            return None;
        }
        let value = entry.value.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(key.place);
        Some(value)
    }

    /// The key of whatever is at `place` now.
    pub(crate) fn key_at(&self, place: u32) -> Option<Key> {
        let entry = self.entries.get(place as usize)?;
        entry.value.as_ref().map(|_| Key { place, generation: entry.generation })
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        (0..self.entries.len()).filter_map(|place| self.key_at(u32::try_from(place).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_does_not_reach_the_next_one_at_its_place() {
        let mut table = Table::new();
        let first = table.insert('a');
        assert_eq!(table.remove(first), Some('a'));
        let second = table.insert('b');
        assert_eq!(second.place(), first.place());
        assert_eq!(table.get(first), None);
        assert_eq!(table.get_mut(first), None);
        assert_eq!(table.remove(first), None);
        assert_eq!(table.get(second), Some(&'b'));
        assert_eq!((table.len(), table.key_at(0)), (1, Some(second)));
    }

    #[test]
    fn a_key_survives_as_a_word() {
        let key = Key { place: 7, generation: u32::MAX };
        assert_eq!(Key::from_word(key.to_word()), key);
    }
}
