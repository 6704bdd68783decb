//! The form of a Windows name, which determines the folder or drive from which the name starts.

use super::Unit;

/// The seven forms of a name on Windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `\\host\share`.
    Share,
    /// `\\.\` or `\\?\`.
    Device,
    /// Exactly `\\.` or `\\?`.
    DeviceRoot,
    /// `C:\`, with a drive letter of this many units.
    Drive {
        /// The number of units before the colon.
        letter: usize,
    },
    /// `C:name`, relative to the working directory of that drive.
    DriveRelative {
        /// The number of units before the colon.
        letter: usize,
    },
    /// `\name`, relative to the drive or share of the working directory.
    Rooted,
    /// Any other name.
    Relative,
}

impl Form {
    /// Returns the form of `name`.
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

    /// Whether a name of this form is complete by itself.
    #[must_use]
    pub fn is_absolute(self) -> bool {
        matches!(self, Self::Share | Self::Device | Self::Drive { .. })
    }
}

fn is_dot_or_query<U: Unit>(unit: U) -> bool {
    unit.is(b'.') || unit.is(b'?')
}
