//! Conditions under which compiled code may stand for its source.

/// The warnings that are enabled while Ruby compiles.
///
/// Code that compiled without a warning is used only if no further warnings are enabled now. Otherwise `ruby
/// -w` would be silent about a file that was compiled without `-w`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Warnings {
    /// `$VERBOSE`: nil is 0, false 1, true 2.
    pub level: u8,
    /// One bit for each enabled category (`Warning[:deprecated]` and others).
    pub categories: u8,
}

/// Set if no component of the path is a link, so that the path is its own real path.
const IS_REAL: u32 = 1 << 16;
/// Set if the file has no access list, so that its mode alone decides on access.
const HAS_PLAIN_RIGHTS: u32 = 1 << 17;
/// Set if every user may read the file.
const IS_OPEN: u32 = 1 << 18;

/// The flags of a feature's entry, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodeFlags {
    /// The warnings under which the source compiled silently.
    pub silent: Warnings,
    /// Whether the feature's path is its own real path.
    pub is_real: bool,
    /// Whether the file has no access list, so that its mode alone decides on access.
    pub has_plain_rights: bool,
    /// Whether every user may read the file.
    pub is_open: bool,
}

impl CodeFlags {
    pub(crate) fn to_bits(self) -> u32 {
        let bit = |is_set: bool, bit: u32| if is_set { bit } else { 0 };
        u32::from(self.silent.level)
            | u32::from(self.silent.categories) << 8
            | bit(self.is_real, IS_REAL)
            | bit(self.has_plain_rights, HAS_PLAIN_RIGHTS)
            | bit(self.is_open, IS_OPEN)
    }

    pub(crate) fn from_bits(bits: u32) -> Self {
        let [level, categories, ..] = bits.to_le_bytes();
        Self {
            silent: Warnings { level, categories },
            is_real: bits & IS_REAL != 0,
            has_plain_rights: bits & HAS_PLAIN_RIGHTS != 0,
            is_open: bits & IS_OPEN != 0,
        }
    }
}

impl Warnings {
    /// Whether every warning enabled here is also enabled in `other`.
    #[must_use]
    pub fn within(self, other: Self) -> bool {
        self.level <= other.level && self.categories & !other.categories == 0
    }
}

/// The reason why Ruby compiled a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// The pack does not hold the feature.
    NotPacked,
    /// The file differs from the one that was compiled.
    Stale,
    /// The path leads to a different file than before.
    Moved,
    /// The path is a link, or not a regular file.
    NotRegular,
    /// The entry is damaged.
    Damaged,
    /// Ruby may warn about the file, because more warnings are enabled than when it was compiled.
    MayWarn,
    /// Code coverage is being measured, which changes the compiled code.
    Coverage,
    /// The compile options differ from those of the pack.
    CompileOption,
    /// Ruby notes where Strings are created (`$DEBUG`, `--debug-frozen-string-literal`), which packed code cannot.
    Debug,
    /// The program keeps the source lines of what it loads (`SCRIPT_LINES__`).
    Lines,
    /// Ruby rejected the code.
    Refused,
}

impl Reason {
    /// The reason as a phrase.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::NotPacked => "not in the pack",
            Self::Stale => "changed since",
            Self::Moved => "its path now leads to another file",
            Self::NotRegular => "a link, or not a regular file",
            Self::Damaged => "damaged in the pack",
            Self::MayWarn => "may give warnings that were off when it was compiled",
            Self::Coverage => "coverage is being measured",
            Self::CompileOption => "the compile options differ",
            Self::Debug => "Ruby notes where strings are created",
            Self::Lines => "the program keeps the lines of its source",
            Self::Refused => "Ruby rejected the code",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_as_they_were_written() {
        for bits in 0..8 {
            let [is_real, has_plain_rights, is_open] = [1, 2, 4].map(|bit| bits & bit != 0);
            let silent = Warnings { level: 2, categories: 5 };
            let flags = CodeFlags { silent, is_real, has_plain_rights, is_open };
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
}
