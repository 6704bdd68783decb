//! Folders that are listed once, and asked for their stamp from then on: one question a folder.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use super::{Hits, Lister, Trouble, Wanted};
use crate::fold::fold;

/// Entries of one folder that are kept; a folder of more is searched each time.
pub const ENTRIES_MAX: usize = 100_000;

/// Folders that are kept; further ones are searched each time.
pub const FOLDERS_MAX: usize = 4096;

/// How long after a folder's last change a second one may leave the stamp as it is. File systems take
/// their time from a clock that ticks: every 10 ms at most on Linux, every 16 on Windows.
const TICK: Duration = Duration::from_millis(50);

/// When a folder's entries changed last. Two equal stamps, taken apart, mean that nothing changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Times, and on POSIX also the device and the inode: whatever the system has.
    parts: [i64; 4],
    /// The later of the last changes, as time since the epoch.
    modified: Duration,
}

impl Stamp {
    /// From creation, last write and last change, in units of 100 ns since 1601.
    #[must_use]
    pub fn of_nt([created, written, changed]: [i64; 3]) -> Self {
        const UNITS_A_SECOND: i64 = 10_000_000;
        const SECONDS_1601_TO_1970: i64 = 11_644_473_600;
        let last = written.max(changed);
        let seconds = last / UNITS_A_SECOND - SECONDS_1601_TO_1970;
        let nanoseconds = last % UNITS_A_SECOND * 100;
        Self { parts: [created, written, changed, 0], modified: duration(seconds, nanoseconds) }
    }

    /// From device, inode, and the last changes of entries and inode.
    #[must_use]
    pub fn of_posix(identity: (u64, u64), modified: (i64, i64), changed: (i64, i64)) -> Self {
        const NANOSECONDS: i64 = 1_000_000_000;
        let nanoseconds = |(seconds, rest): (i64, i64)| seconds.wrapping_mul(NANOSECONDS) + rest;
        let (device, inode) = (identity.0.cast_signed(), identity.1.cast_signed());
        Self {
            parts: [device, inode, nanoseconds(modified), nanoseconds(changed)],
            modified: duration(modified.0, modified.1).max(duration(changed.0, changed.1)),
        }
    }

    /// Whether a change after `now` would show: the last one is older than a tick of the clock.
    fn is_settled(&self, now: Duration) -> bool {
        now.checked_sub(self.modified).is_some_and(|age| age > TICK)
    }
}

fn duration(seconds: i64, nanoseconds: i64) -> Duration {
    let seconds = u64::try_from(seconds).unwrap_or(0);
    Duration::new(seconds, u32::try_from(nanoseconds).unwrap_or(0))
}

/// A file system whose folders can be listed and stamped.
pub trait Folders: Lister {
    /// The stamp of a folder: one question.
    ///
    /// # Errors
    /// What kept it from an answer.
    fn stamp(&mut self, base: &[u8]) -> Result<Stamp, Trouble>;

    /// Whether the file system changes the stamp with every entry. FAT does not, and a network
    /// file system may tell late.
    fn keeps_stamps(&mut self, base: &[u8]) -> bool;

    /// Shows every entry, with whether it is a folder.
    ///
    /// # Errors
    /// What kept it from an answer.
    fn list(&mut self, base: &[u8], show: &mut dyn FnMut(&[u8], bool)) -> Result<(), Trouble>;

    /// Whether an entry is a candidate as soon as it is there. On POSIX it must also be a file that may
    /// be run, which no listing tells.
    fn list_is_enough(&self) -> bool;
}

/// A lister that keeps what it has seen of each folder, and checks that nothing changed since.
#[derive(Debug)]
pub struct Listings<F> {
    folders: F,
    listings: HashMap<Vec<u8>, Listing>,
}

/// The entries of a folder, folded and sorted, each with whether it is a folder.
pub(super) type Entries = Vec<(Vec<u8>, bool)>;

/// What is known of one folder.
#[derive(Debug)]
enum Listing {
    /// Its entries when it had this stamp. Unsettled ones are listed again.
    Known { stamp: Stamp, settled: bool, entries: Entries },
    /// Its file system keeps no stamps, or it holds too much.
    Unkept,
}

impl<F: Folders> Listings<F> {
    /// Knows nothing yet.
    pub fn new(folders: F) -> Self {
        Self { folders, listings: HashMap::new() }
    }

    /// The file system it asks.
    pub fn folders_mut(&mut self) -> &mut F {
        &mut self.folders
    }

    /// Lists `base` if it has changed since it was listed, and answers from that.
    fn look_validated(&mut self, base: &[u8], wanted: &Wanted) -> Result<Hits, Trouble> {
        let now = self.folders.stamp(base)?;
        match self.listings.get(base) {
            Some(Listing::Known { stamp, settled: true, entries }) if *stamp == now => {
                Ok(hits_among(entries, wanted))
            }
            _ => self.look_afresh(base, now, wanted),
        }
    }

    fn look_afresh(&mut self, base: &[u8], stamp: Stamp, wanted: &Wanted) -> Result<Hits, Trouble> {
        let is_new = !self.listings.contains_key(base);
        if is_new && (self.listings.len() == FOLDERS_MAX || !self.folders.keeps_stamps(base)) {
            return self.look_unkept(base, wanted);
        }
        let settled = stamp.is_settled(now());
        // A folder that may not be read may be searched all the same.
        let entries = match listed(&mut self.folders, base) {
            Ok(Some(entries)) => entries,
            Ok(None) | Err(Trouble::Denied) => return self.look_unkept(base, wanted),
            Err(trouble) => return Err(trouble),
        };
        let hits = hits_among(&entries, wanted);
        self.listings.insert(base.to_vec(), Listing::Known { stamp, settled, entries });
        Ok(hits)
    }

    fn look_unkept(&mut self, base: &[u8], wanted: &Wanted) -> Result<Hits, Trouble> {
        if self.listings.len() < FOLDERS_MAX {
            self.listings.insert(base.to_vec(), Listing::Unkept);
        }
        self.folders.look(base, wanted)
    }

    /// Whether the last listing of `base` holds something that is wanted; it may be out of date.
    fn may_hold(&self, base: &[u8], wanted: &Wanted) -> bool {
        match self.listings.get(base) {
            Some(Listing::Known { entries, .. }) => !hits_among(entries, wanted).is_empty(),
            _ => false,
        }
    }
}

impl<F: Folders> Lister for Listings<F> {
    fn look(&mut self, base: &[u8], wanted: &Wanted) -> Result<Hits, Trouble> {
        let is_unkept = matches!(self.listings.get(base), Some(Listing::Unkept));
        if is_unkept || wanted.may_be_short_name() {
            return self.folders.look(base, wanted);
        }
        if self.folders.list_is_enough() {
            return self.look_validated(base, wanted);
        }
        // The entry itself has to be asked, so the stamp is asked only where there was none.
        if self.may_hold(base, wanted) {
            return self.folders.look(base, wanted);
        }
        if self.look_validated(base, wanted)?.is_empty() {
            return Ok(Hits::default());
        }
        self.folders.look(base, wanted)
    }

    fn lookups(&self) -> u64 {
        self.folders.lookups()
    }
}

/// Time since the epoch.
fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// The entries of a folder; none, if there are more than are kept.
pub(super) fn listed(folders: &mut impl Folders, base: &[u8]) -> Result<Option<Entries>, Trouble> {
    let mut entries = Entries::new();
    folders.list(base, &mut |name, is_directory| {
        if entries.len() <= ENTRIES_MAX {
            entries.push((fold(name).into_owned(), is_directory));
        }
    })?;
    entries.sort_unstable();
    Ok((entries.len() <= ENTRIES_MAX).then_some(entries))
}

/// What is wanted among the sorted `entries` of a folder.
pub(super) fn hits_among(entries: &[(Vec<u8>, bool)], wanted: &Wanted) -> Hits {
    let stem = wanted.folded();
    let start = entries.partition_point(|(name, _)| name.as_slice() < stem);
    let mut hits = Hits::default();
    for (name, is_directory) in &entries[start..] {
        let Some(rest) = name.strip_prefix(stem) else { break };
        let place = wanted.suffixes().iter().position(|suffix| suffix == rest);
        if let Some(place) = place.filter(|_| !is_directory || wanted.accepts_directories()) {
            hits.add(place);
        }
    }
    hits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::{Places, Plan, Rules, Search};

    /// A folder that holds every name, and may be searched but not read.
    #[derive(Default)]
    struct Unreadable {
        lookups: u64,
    }

    impl Lister for Unreadable {
        fn look(&mut self, _: &[u8], _: &Wanted) -> Result<Hits, Trouble> {
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
        fn stamp(&mut self, _: &[u8]) -> Result<Stamp, Trouble> {
            Ok(Stamp::of_nt([0; 3]))
        }

        fn keeps_stamps(&mut self, _: &[u8]) -> bool {
            true
        }

        fn list(&mut self, _: &[u8], _: &mut dyn FnMut(&[u8], bool)) -> Result<(), Trouble> {
            Err(Trouble::Denied)
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
