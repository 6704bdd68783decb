//! The sources of a mount by number, and their order.
//!
//! Inodes contain the numbers of sources, so a source keeps its number for as long as the mount exists. A removed
//! source leaves a gap, which is filled when a source with the same path is added again.

use serde::{Deserialize, Serialize};

use crate::source_spec::SourceSpec;
use crate::sources::Place;

/// A source with its number, which is its index in the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SourceEntry {
    pub(crate) spec: SourceSpec,
    /// The folder's place when the source was added; `None` for a source that stays as it was when the mount was made.
    pub(crate) place: Option<Place>,
    pub(crate) is_removed: bool,
}

/// All sources that the mount ever had.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct SourceTable {
    pub(crate) entries: Vec<SourceEntry>,
    /// The numbers of the sources, in the order of precedence. Removed sources are not in it.
    pub(crate) order: Vec<u16>,
}

impl SourceTable {
    /// Creates the table of a new mount.
    pub(crate) fn new(sources: Vec<(SourceSpec, Option<Place>)>) -> Self {
        let mut table = Self::default();
        table.set(sources);
        table
    }

    /// Makes these the sources, in this order.
    pub(crate) fn set(&mut self, sources: Vec<(SourceSpec, Option<Place>)>) {
        let before = std::mem::take(&mut self.order);
        for (spec, place) in sources {
            let known = self.entries.iter().position(|entry| entry.spec.path == spec.path);
            // An existing source keeps its place: a folder that an unmount has uncovered is not a new source.
            let is_kept =
                known.is_some_and(|at| before.iter().any(|&number| usize::from(number) == at));
            let number = known.unwrap_or(self.entries.len());
            match self.entries.get_mut(number) {
                Some(entry) if is_kept => entry.spec = spec,
                Some(entry) => *entry = SourceEntry { spec, place, is_removed: false },
                None => self.entries.push(SourceEntry { spec, place, is_removed: false }),
            }
            self.order.extend(u16::try_from(number));
        }
        for (number, entry) in self.entries.iter_mut().enumerate() {
            entry.is_removed = !self.order.iter().any(|&kept| usize::from(kept) == number);
        }
    }

    /// Takes over the sources of another table, which has the same numbers. Sources that are in both keep their place,
    /// since the other table does not know where they appeared.
    pub(crate) fn replace(&mut self, other: Self) {
        let before = std::mem::replace(self, other);
        for (entry, old) in self.entries.iter_mut().zip(before.entries) {
            if !entry.is_removed && !old.is_removed {
                entry.place = old.place;
            }
        }
    }

    /// Returns the sources in the order of precedence.
    pub(crate) fn specs(&self) -> impl Iterator<Item = &SourceSpec> {
        self.order.iter().filter_map(|&number| Some(&self.entries.get(usize::from(number))?.spec))
    }

    /// Whether any source is followed as file systems are mounted and unmounted.
    pub(crate) fn is_followed(&self) -> bool {
        self.entries.iter().any(|entry| entry.place.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    fn sources(paths: &[&str]) -> Vec<(SourceSpec, Option<Place>)> {
        let spec =
            |path: &&str| (SourceSpec::parse(OsStr::new(path)).unwrap(), Some(Place::missing()));
        paths.iter().map(spec).collect()
    }

    fn paths(table: &SourceTable) -> Vec<String> {
        table.specs().map(ToString::to_string).collect()
    }

    #[test]
    fn a_source_keeps_its_number() {
        let mut table = SourceTable::new(sources(&["/a", "/b"]));
        table.set(sources(&["/c", "/b=RO"]));
        assert_eq!(table.order, [2, 1]);
        assert!(table.entries[0].is_removed);
        assert_eq!(paths(&table), ["/c", "/b=RO"]);
        table.set(sources(&["/b", "/a"]));
        assert_eq!((table.order.as_slice(), table.entries.len()), ([1, 0].as_slice(), 3));
        assert!(table.entries[2].is_removed && !table.entries[0].is_removed);
    }
}
