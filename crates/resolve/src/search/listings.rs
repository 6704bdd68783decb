//! Folders that are listed once and then validated by their stamp, with one query per folder.

use std::collections::HashMap;

use super::{Hits, Lister, LookupFailure, Query};
use crate::fold::fold;
use crate::stamp::{Stamp, now_ns};

/// The most entries of a folder that are kept. A larger folder is searched each time.
pub const ENTRIES_MAX: usize = 100_000;

/// The most folders that are kept. Others are searched each time.
pub const FOLDERS_MAX: usize = 4096;

/// The time of the last change of a folder's entries. Equal stamps taken at different times mean that nothing
/// changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FolderStamp {
    /// The device, if the system reports it. A mount over the folder has a different one.
    device: u64,
    stamp: Stamp,
}

impl FolderStamp {
    /// Creates a stamp from creation, last write and last change, in units of 100 ns since 1601.
    #[must_use]
    pub fn of_nt([created, written, changed]: [i64; 3]) -> Self {
        const UNITS_1601_TO_1970: i64 = 116_444_736_000_000_000;
        let nanoseconds = |units: i64| units.saturating_sub(UNITS_1601_TO_1970).saturating_mul(100);
        let (mtime_ns, ctime_ns) = (nanoseconds(written), nanoseconds(changed));
        // A folder that replaces another one differs by its creation time, as by an inode.
        let stamp = Stamp { size: 0, mtime_ns, ctime_ns, inode: created.cast_unsigned() };
        Self { device: 0, stamp }
    }

    /// Creates the stamp of a `stat` result.
    #[cfg(target_os = "linux")]
    #[must_use]
    pub fn of(stat: &rustix::fs::Stat) -> Self {
        Self { device: stat.st_dev, stamp: Stamp::of(stat) }
    }
}

/// A file system whose folders can be listed and have stamps.
pub trait Folders: Lister {
    /// Returns the stamp of a folder, by one query.
    ///
    /// # Errors
    /// The reason why there is no stamp.
    fn stamp(&mut self, base: &[u8]) -> Result<FolderStamp, LookupFailure>;

    /// Whether the file system updates the stamp with every entry. FAT does not, and a network file system
    /// may do so late.
    fn keeps_stamps(&mut self, base: &[u8]) -> bool;

    /// Passes every entry to `show`, with whether it is a folder.
    ///
    /// # Errors
    /// The reason why the folder cannot be listed.
    fn list(&mut self, base: &[u8], show: &mut dyn FnMut(&[u8], bool))
    -> Result<(), LookupFailure>;

    /// Whether an existing entry is a candidate without further checks. On POSIX it must also be an
    /// executable file, which a listing does not tell.
    fn list_is_enough(&self) -> bool;
}

/// A lister that keeps the listing of each folder, and validates it before each use.
#[derive(Debug)]
pub struct Listings<F> {
    folders: F,
    listings: HashMap<Vec<u8>, Listing>,
}

/// The entries of a folder, folded and sorted, each with whether it is a folder.
pub(super) type Entries = Vec<(Vec<u8>, bool)>;

/// The cached state of a folder.
#[derive(Debug)]
enum Listing {
    /// The entries at the time of this stamp. If not settled, the folder is listed again.
    Known { stamp: FolderStamp, settled: bool, entries: Entries },
    /// The folder is not kept, because its file system has no usable stamps or it has too many entries.
    Unkept,
}

impl<F: Folders> Listings<F> {
    /// Creates an empty cache.
    pub fn new(folders: F) -> Self {
        Self { folders, listings: HashMap::new() }
    }

    /// The underlying file system.
    pub fn folders_mut(&mut self) -> &mut F {
        &mut self.folders
    }

    /// Lists `base` again if it has changed, and answers from the listing.
    fn look_validated(&mut self, base: &[u8], query: &Query) -> Result<Hits, LookupFailure> {
        let now = self.folders.stamp(base)?;
        match self.listings.get(base) {
            Some(Listing::Known { stamp, settled: true, entries }) if *stamp == now => {
                Ok(hits_among(entries, query))
            }
            _ => self.look_afresh(base, now, query),
        }
    }

    fn look_afresh(
        &mut self,
        base: &[u8],
        stamp: FolderStamp,
        query: &Query,
    ) -> Result<Hits, LookupFailure> {
        let is_new = !self.listings.contains_key(base);
        if is_new && (self.listings.len() == FOLDERS_MAX || !self.folders.keeps_stamps(base)) {
            return self.look_unkept(base, query);
        }
        let settled = !stamp.stamp.is_racy(now_ns());
        // An unreadable folder may still be searchable.
        let entries = match listed(&mut self.folders, base) {
            Ok(Some(entries)) => entries,
            Ok(None) | Err(LookupFailure::Denied) => return self.look_unkept(base, query),
            Err(failure) => return Err(failure),
        };
        let hits = hits_among(&entries, query);
        self.listings.insert(base.to_vec(), Listing::Known { stamp, settled, entries });
        Ok(hits)
    }

    fn look_unkept(&mut self, base: &[u8], query: &Query) -> Result<Hits, LookupFailure> {
        if self.listings.len() < FOLDERS_MAX {
            self.listings.insert(base.to_vec(), Listing::Unkept);
        }
        self.folders.look(base, query)
    }

    /// Whether the latest listing of `base`, which may be outdated, holds a wanted name.
    fn may_hold(&self, base: &[u8], query: &Query) -> bool {
        match self.listings.get(base) {
            Some(Listing::Known { entries, .. }) => !hits_among(entries, query).is_empty(),
            _ => false,
        }
    }
}

impl<F: Folders> Lister for Listings<F> {
    fn look(&mut self, base: &[u8], query: &Query) -> Result<Hits, LookupFailure> {
        let is_unkept = matches!(self.listings.get(base), Some(Listing::Unkept));
        if is_unkept || query.may_be_short_name() {
            return self.folders.look(base, query);
        }
        if self.folders.list_is_enough() {
            return self.look_validated(base, query);
        }
        // A candidate has to be examined anyway, so the stamp is checked only if the listing has none.
        if self.may_hold(base, query) {
            return self.folders.look(base, query);
        }
        if self.look_validated(base, query)?.is_empty() {
            return Ok(Hits::default());
        }
        self.folders.look(base, query)
    }

    fn lookups(&self) -> u64 {
        self.folders.lookups()
    }
}

/// Lists a folder; `None` if there are more than [`ENTRIES_MAX`] entries.
pub(super) fn listed(
    folders: &mut impl Folders,
    base: &[u8],
) -> Result<Option<Entries>, LookupFailure> {
    let mut entries = Entries::new();
    folders.list(base, &mut |name, is_directory| {
        if entries.len() <= ENTRIES_MAX {
            entries.push((fold(name).into_owned(), is_directory));
        }
    })?;
    entries.sort_unstable();
    Ok((entries.len() <= ENTRIES_MAX).then_some(entries))
}

/// Returns the wanted names among the sorted `entries` of a folder.
pub(super) fn hits_among(entries: &[(Vec<u8>, bool)], query: &Query) -> Hits {
    let stem = query.folded();
    let start = entries.partition_point(|(name, _)| name.as_slice() < stem);
    let mut hits = Hits::default();
    for (name, is_directory) in &entries[start..] {
        let Some(rest) = name.strip_prefix(stem) else { break };
        let place = query.suffixes().iter().position(|suffix| suffix == rest);
        if let Some(place) = place.filter(|_| !is_directory || query.accepts_directories()) {
            hits.add(place);
        }
    }
    hits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::{Places, Plan, Rules, Search};

    /// A folder that holds every name and is searchable but not readable.
    #[derive(Default)]
    struct Unreadable {
        lookups: u64,
    }

    impl Lister for Unreadable {
        fn look(&mut self, _: &[u8], _: &Query) -> Result<Hits, LookupFailure> {
            self.lookups += 1;
            let mut hits = Hits::default();
            hits.add(0);
            Ok(hits)
        }

        fn lookups(&self) -> u64 {
            self.lookups
        }
    }

    impl Folders for Unreadable {
        fn stamp(&mut self, _: &[u8]) -> Result<FolderStamp, LookupFailure> {
            Ok(FolderStamp::of_nt([0; 3]))
        }

        fn keeps_stamps(&mut self, _: &[u8]) -> bool {
            true
        }

        fn list(&mut self, _: &[u8], _: &mut dyn FnMut(&[u8], bool)) -> Result<(), LookupFailure> {
            Err(LookupFailure::Denied)
        }

        fn list_is_enough(&self) -> bool {
            false
        }
    }

    #[test]
    fn a_folder_that_may_not_be_read_is_searched_each_time() {
        let places = Places { path: b"/x", before: &[] };
        let plan = Plan::new(&Rules::exec(), b"a", &places).unwrap();
        let mut listings = Listings::new(Unreadable::default());
        for lookups in [2, 3] {
            let found = Search::new(&plan, &mut listings).next().unwrap().unwrap();
            assert_eq!((found.path.as_slice(), listings.lookups()), (b"/x/a".as_slice(), lookups));
        }
    }
}
