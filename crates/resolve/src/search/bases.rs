//! The folders of a search, in one piece of memory: a `PATH` may have hundreds.

use std::borrow::Cow;
use std::collections::HashSet;

/// Folders in order, each once: a second look at one would be answered already.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bases {
    /// One after the other.
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl Bases {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The one at `place`.
    #[must_use]
    pub fn get(&self, place: usize) -> Option<&[u8]> {
        let end = *self.ends.get(place)?;
        let start = if place == 0 { 0 } else { self.ends[place - 1] };
        Some(&self.text[start..end])
    }

    /// All of them.
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
