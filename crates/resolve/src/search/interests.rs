//! The bases affected by a watched folder, by number.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

/// The entry of a folder by which a base's path continues; `None` if the folder is the base.
pub(super) type Onward = Option<Vec<u8>>;

/// Bases that lead through a folder, and bases that are the folder.
#[derive(Debug, Default)]
pub(super) struct Interests {
    /// Bases by the entry with which they continue.
    through: HashMap<Vec<u8>, HashSet<usize>>,
    /// Bases that are the folder.
    at_folder: HashSet<usize>,
}

impl Interests {
    pub(super) fn insert(&mut self, number: usize, onward: Onward) {
        match onward {
            Some(entry) => self.through.entry(entry).or_default().insert(number),
            None => self.at_folder.insert(number),
        };
    }

    pub(super) fn remove(&mut self, number: usize, onward: Onward) {
        match onward.map(|entry| self.through.entry(entry)) {
            None => _ = self.at_folder.remove(&number),
            Some(Entry::Vacant(_)) => {}
            Some(Entry::Occupied(mut numbers)) => {
                numbers.get_mut().remove(&number);
                if numbers.get().is_empty() {
                    numbers.remove();
                }
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at_folder.is_empty() && self.through.is_empty()
    }

    /// Returns the bases that continue with `entry`.
    pub(super) fn through(&self, entry: &[u8]) -> impl Iterator<Item = usize> {
        self.through.get(entry).into_iter().flatten().copied()
    }

    /// Returns the bases that are the folder.
    pub(super) fn at_folder(&self) -> impl Iterator<Item = usize> {
        self.at_folder.iter().copied()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = usize> {
        self.at_folder.iter().chain(self.through.values().flatten()).copied()
    }
}
