//! Which compiled code stands for which source, and when it may be used.

use rustix::fs::{FileType, Stat};
use thruway_pack::{Entry, Stamp};

/// What Ruby would say while it compiles, as far as it can be switched off.
///
/// Code that was compiled without a warning is used only where no more warnings are wanted now than
/// were then: otherwise `ruby -w` would be silent about a file because somebody ran it without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Warnings {
    /// `$VERBOSE`: nil is 0, false 1, true 2.
    pub level: u8,
    /// One bit for each category that is switched on (`Warning[:deprecated]` and others).
    pub categories: u8,
}

/// Set if the path runs through no link, so that it is its own real path.
const IS_REAL: u32 = 1 << 16;

/// What an entry's flags say of its code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodeFlags {
    /// Under which warnings the source compiled in silence.
    pub silent: Warnings,
    /// Whether the feature's path is its own real path.
    pub is_real: bool,
}

impl CodeFlags {
    pub(crate) fn to_bits(self) -> u32 {
        let real = if self.is_real { IS_REAL } else { 0 };
        u32::from(self.silent.level) | u32::from(self.silent.categories) << 8 | real
    }

    pub(crate) fn from_bits(bits: u32) -> Self {
        let [level, categories, ..] = bits.to_le_bytes();
        Self { silent: Warnings { level, categories }, is_real: bits & IS_REAL != 0 }
    }
}

impl Warnings {
    /// Whether nothing is wanted here that is not wanted in `other`.
    #[must_use]
    pub fn within(self, other: Self) -> bool {
        self.level <= other.level && self.categories & !other.categories == 0
    }
}

/// Why a feature was left to Ruby.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// The pack does not hold it.
    NotPacked,
    /// The file is not the one that was compiled.
    Stale,
    /// The path leads to another file than it did.
    Moved,
    /// It is a link, or not a regular file.
    NotRegular,
    /// The pack's copy is damaged.
    Damaged,
    /// Ruby may have something to say about it that it had no reason to say then.
    MayWarn,
    /// Code coverage is being measured.
    Coverage,
    /// The compile options are not those of the pack.
    CompileOption,
    /// The program wants the source of what it loads, line by line.
    Lines,
    /// Ruby did not take the code.
    Refused,
}

impl Reason {
    /// The reason in words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::NotPacked => "not in the pack",
            Self::Stale => "changed since",
            Self::Moved => "its path leads elsewhere now",
            Self::NotRegular => "a link, or not a regular file",
            Self::Damaged => "damaged in the pack",
            Self::MayWarn => "may give warnings that were off before",
            Self::Coverage => "coverage is being measured",
            Self::CompileOption => "other compile options",
            Self::Lines => "the program keeps the lines of its source",
            Self::Refused => "Ruby did not take the code",
        }
    }
}

/// What is known of a file that Ruby is about to open.
#[derive(Debug, Clone, Copy)]
pub struct Sighting {
    /// The stamp of the file, if it was asked for: always, unless the pack is frozen.
    pub stamp: Option<Stamp>,
    /// The feature's entry in the pack, if there is one.
    pub entry: Option<Entry<'static>>,
}

impl Sighting {
    /// Whether the file has the stamp of the entry, or nobody asks for it.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        match (self.entry, self.stamp) {
            (Some(entry), Some(stamp)) => entry.stamp() == stamp,
            (Some(_), None) => true,
            (None, _) => false,
        }
    }
}

/// Whether it is certain that `user` can open a regular file with that stat for reading.
///
/// A file that only its group may read is not certain: the list of groups is not asked for.
#[must_use]
pub fn is_loadable(stat: &Stat, user: u32) -> bool {
    let is_regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let by_owner = stat.st_uid == user && stat.st_mode & 0o400 != 0;
    let by_others = stat.st_uid != user && stat.st_mode & 0o044 == 0o044;
    is_regular && (user == 0 || by_owner || by_others)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_as_they_were_written() {
        for is_real in [false, true] {
            let flags = CodeFlags { silent: Warnings { level: 2, categories: 5 }, is_real };
            assert_eq!(CodeFlags::from_bits(flags.to_bits()), flags);
        }
    }

    #[test]
    fn silence_counts_for_the_same_warnings_or_fewer() {
        let plain = Warnings { level: 1, categories: 0b01 };
        assert!(plain.within(plain));
        assert!(Warnings { level: 0, categories: 0 }.within(plain));
        assert!(!Warnings { level: 2, ..plain }.within(plain));
        assert!(!Warnings { categories: 0b11, ..plain }.within(plain));
    }

    #[test]
    fn only_what_can_certainly_be_read_is_loadable() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut stat = rustix::fs::stat(file.path()).unwrap();
        (stat.st_uid, stat.st_mode) = (7, 0o100_640);
        assert!(is_loadable(&stat, 0) && is_loadable(&stat, 7) && !is_loadable(&stat, 8));
        stat.st_mode = 0o100_644;
        assert!(is_loadable(&stat, 8));
        stat.st_mode = 0o100_044;
        assert!(!is_loadable(&stat, 7));
        stat.st_mode = 0o040_755;
        assert!(!is_loadable(&stat, 0));
    }
}
