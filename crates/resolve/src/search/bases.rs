//! The folders of a search in one allocation, because a `PATH` may have hundreds.

use std::borrow::Cow;
use std::collections::HashSet;

/// Distinct folders, in order. Searching a folder twice would be useless.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bases {
    /// The folders, concatenated.
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl Bases {
    /// Returns the number of folders.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no folders.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the folder with the index `place`.
    #[must_use]
    pub fn get(&self, place: usize) -> Option<&[u8]> {
        let end = *self.ends.get(place)?;
        let start = if place == 0 { 0 } else { self.ends[place - 1] };
        Some(&self.text[start..end])
    }

    /// Returns all folders, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).filter_map(|place| self.get(place))
    }

    pub(super) fn new<'a>(folders: impl IntoIterator<Item = Cow<'a, [u8]>>) -> Self {
        let folders = folders.into_iter();
        let mut seen = HashSet::with_capacity(folders.size_hint().0);
        let mut bases = Self::default();
        for folder in folders {
            if seen.insert(folder.clone()) {
                bases.text.extend_from_slice(&folder);
                bases.ends.push(bases.text.len());
            }
        }
        bases
    }
}
