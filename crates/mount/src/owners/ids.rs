//! The users or the groups of a view.

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::Error;

/// The number that means "no user" and "no group".
const NO_ID: u32 = u32::MAX;

/// The maximum number of ranges, which is that of the kernel's own maps.
const RANGES_MAX: usize = 340;

/// A range of consecutive users or groups in the sources, and the range that the view shows instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdRange {
    /// The first number in the sources.
    pub source: u32,
    /// The first shown number.
    pub shown: u32,
    /// The number of users or groups.
    pub count: u32,
}

/// How users or groups are shown, and written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OwnerIds {
    ranges: Vec<IdRange>,
    forced: Option<u32>,
    created: Option<u32>,
}

impl OwnerIds {
    /// Shows the first of each range as the second. With `forced`, all files are shown with this owner. With `created`,
    /// all new files get this owner in the source.
    ///
    /// # Errors
    /// Two ranges overlap, so that an owner would be ambiguous; a range is empty or too long; there are too many.
    pub fn new(
        ranges: Vec<IdRange>,
        forced: Option<u32>,
        created: Option<u32>,
    ) -> Result<Self, Error> {
        if ranges.len() > RANGES_MAX {
            let (count, most) = (ranges.len(), RANGES_MAX);
            return Err(Error::plain(format_args!("{count} ranges of owners, at most {most}")));
        }
        for range in &ranges {
            let ends = [range.source, range.shown].map(|first| first.checked_add(range.count));
            if range.count == 0 || ends.contains(&None) {
                return Err(Error::plain(format_args!(
                    "the range {}:{}:{} is empty or too long",
                    range.source, range.shown, range.count
                )));
            }
        }
        for (index, one) in ranges.iter().enumerate() {
            for other in &ranges[index + 1..] {
                for (first, second, place) in
                    [(one.source, other.source, "source"), (one.shown, other.shown, "mount")]
                {
                    let is_disjoint = first >= second + other.count || second >= first + one.count;
                    if !is_disjoint {
                        let owner = first.max(second);
                        return Err(Error::plain(format_args!(
                            "the owner {owner} of the {place} is mapped twice"
                        )));
                    }
                }
            }
        }
        Ok(Self { ranges, forced, created })
    }

    pub(super) fn created(&self) -> Option<u32> {
        self.created
    }

    /// Returns the owner that is shown for this owner in the source.
    pub(crate) fn shown(&self, source: u32) -> u32 {
        self.forced.unwrap_or_else(|| {
            let shown = |range: &IdRange| moved(source, range.source, range.shown, range.count);
            self.ranges.iter().find_map(shown).unwrap_or(source)
        })
    }

    /// Returns the owner in the source for an owner of the mount. Like the kernel's own maps, fails if the view never
    /// shows that owner.
    pub(crate) fn source(&self, shown: u32) -> Result<u32, Errno> {
        let source = |range: &IdRange| moved(shown, range.shown, range.source, range.count);
        if let Some(source) = self.ranges.iter().find_map(source) {
            return Ok(source);
        }
        let is_away = |range: &IdRange| moved(shown, range.source, 0, range.count).is_some();
        match self.ranges.iter().any(is_away) {
            true => Err(Errno::OVERFLOW),
            false => Ok(shown),
        }
    }

    /// Returns the owner in the source of a file that this owner of the mount creates.
    pub(super) fn of_new(&self, caller: u32) -> Result<u32, Errno> {
        self.created.map_or_else(|| self.source(caller), Ok)
    }

    /// Returns the owner to write for a file that now has the owner `present` in the source.
    pub(super) fn changed(&self, present: u32, asked: u32, ignores: bool) -> Result<u32, Errno> {
        // Several owners may be shown as this one.
        if asked == self.shown(present) {
            return Ok(present);
        }
        match self.forced {
            None => self.source(asked),
            Some(_) if ignores => Ok(present),
            Some(_) => Err(Errno::PERM),
        }
    }

    pub(super) fn describe(&self, kind: &str) -> Vec<String> {
        let range = |range: &IdRange| {
            let count =
                if range.count == 1 { String::new() } else { format!(" ({})", range.count) };
            format!("{kind} {} as {}{count}", range.source, range.shown)
        };
        let mut parts: Vec<_> = self.ranges.iter().map(range).collect();
        parts.extend(self.forced.map(|owner| format!("all {kind}s as {owner}")));
        parts.extend(self.created.map(|owner| format!("new files for {kind} {owner}")));
        parts
    }
}

/// Moves an owner from one range to another one.
fn moved(owner: u32, from: u32, to: u32, count: u32) -> Option<u32> {
    let offset = owner.checked_sub(from).filter(|&offset| offset < count && owner != NO_ID)?;
    Some(to + offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ranges: &[(u32, u32, u32)]) -> Result<OwnerIds, Error> {
        let range = |&(source, shown, count)| IdRange { source, shown, count };
        OwnerIds::new(ranges.iter().map(range).collect(), None, None)
    }

    #[test]
    fn owners_are_mapped_in_both_directions() {
        let owners = ids(&[(1000, 33, 1), (33, 1000, 1), (100_000, 0, 33)]).unwrap();
        for (source, shown) in [(1000, 33), (33, 1000), (100_005, 5), (7_000_000, 7_000_000)] {
            assert_eq!((owners.shown(source), owners.source(shown)), (shown, Ok(source)));
        }
        assert_eq!(owners.source(100_000), Err(Errno::OVERFLOW));
    }

    #[test]
    fn an_owner_without_files_cannot_be_written() {
        let owners = ids(&[(1000, 33, 1)]).unwrap();
        // Both are shown as 33, and it is written as 1000.
        assert_eq!((owners.shown(1000), owners.shown(33)), (33, 33));
        assert_eq!(owners.source(33), Ok(1000));
        assert_eq!(owners.source(1000), Err(Errno::OVERFLOW));
        // A change to the owner that is shown changes nothing.
        assert_eq!(owners.changed(33, 33, false), Ok(33));
        assert_eq!(owners.changed(0, 33, false), Ok(1000));
        assert_eq!(owners.changed(0, 1000, false), Err(Errno::OVERFLOW));
    }

    #[test]
    fn a_forced_owner_is_shown_and_never_written() {
        let owners = OwnerIds::new(Vec::new(), Some(7), Some(8)).unwrap();
        assert_eq!((owners.shown(0), owners.of_new(5)), (7, Ok(8)));
        assert_eq!(owners.changed(3, 7, false), Ok(3));
        assert_eq!(owners.changed(3, 9, false), Err(Errno::PERM));
        assert_eq!(owners.changed(3, 9, true), Ok(3));
    }

    #[test]
    fn ambiguous_and_impossible_ranges_are_refused() {
        let refusal = |ranges| ids(ranges).unwrap_err().to_string();
        assert_eq!(refusal(&[(1, 5, 3), (3, 9, 1)]), "the owner 3 of the source is mapped twice");
        assert_eq!(refusal(&[(1, 5, 3), (9, 7, 1)]), "the owner 7 of the mount is mapped twice");
        assert_eq!(refusal(&[(1, 5, 0)]), "the range 1:5:0 is empty or too long");
        assert_eq!(
            refusal(&[(1, 4_294_967_290, 6)]),
            "the range 1:4294967290:6 is empty or too long"
        );
        assert!(ids(&[(1, 4_294_967_290, 5), (4_294_967_290, 1, 5)]).is_ok());
        assert_eq!(refusal(&[(0, 0, 1); 341]), "341 ranges of owners, at most 340");
    }
}
