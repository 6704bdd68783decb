//! What a name on Windows is relative to.

use super::Unit;

/// The seven forms of a name on Windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `\\host\share`.
    Share,
    /// `\\.\` or `\\?\`.
    Device,
    /// `\\.` or `\\?`, and nothing more.
    DeviceRoot,
    /// `C:\`; the letter is so many units long.
    Drive {
        /// Units before the colon.
        letter: usize,
    },
    /// `C:name`, relative to that drive's current folder.
    DriveRelative {
        /// Units before the colon.
        letter: usize,
    },
    /// `\name`, relative to the current folder's drive or share.
    Rooted,
    /// Everything else.
    Relative,
}

impl Form {
    /// The form of `name`.
    #[must_use]
    pub fn of<U: Unit>(name: &[U]) -> Self {
        match name {
            [a, b, rest @ ..] if a.separates() && b.separates() => match rest {
                [dot, separator, ..] if is_dot_or_query(*dot) && separator.separates() => {
                    Self::Device
                }
                [dot] if is_dot_or_query(*dot) => Self::DeviceRoot,
                _ => Self::Share,
            },
            [a, ..] if a.separates() => Self::Rooted,
            _ => Self::of_drive(name),
        }
    }

    fn of_drive<U: Unit>(name: &[U]) -> Self {
        let letter = U::letter(name);
        match name.get(letter..) {
            Some([colon, separator, ..]) if colon.is(b':') && separator.separates() => {
                Self::Drive { letter }
            }
            Some([colon, ..]) if colon.is(b':') => Self::DriveRelative { letter },
            _ => Self::Relative,
        }
    }

    /// Whether a name of this form needs nothing else to be complete.
    #[must_use]
    pub fn is_absolute(self) -> bool {
        matches!(self, Self::Share | Self::Device | Self::Drive { .. })
    }
}

fn is_dot_or_query<U: Unit>(unit: U) -> bool {
    unit.is(b'.') || unit.is(b'?')
}
