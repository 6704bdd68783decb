//! Names that mean a device on Windows, wherever they stand: `nul`, `con.txt`, `com1`.
//!
//! Source of the rules of both systems: "Special DOS Device names" in the book of the omnipath crate.
//! Another source of the list of names: Microsoft's "Naming Files, Paths, and Namespaces".

use super::Unit;
use super::form::Form;

/// Which names mean a device; Windows 11 changed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Devices {
    /// Up to Windows 10 and Server 2022: the last component of any name, up to its first dot or colon.
    /// Names on a share are excepted. `C:\x\nul.txt` is `\\.\nul`.
    Windows10,
    /// Since Windows 11: only a name that is nothing else. `C:\x\con` and `nul.txt` are files. `nul`
    /// alone also counts as the last component (where its folder exists, which is not asked here).
    #[default]
    Windows11,
}

impl Devices {
    /// The device that `name` means, as `name` spells it, if it means one.
    #[must_use]
    pub fn device_of<U: Unit>(self, name: &[U]) -> Option<&[U]> {
        if matches!(Form::of(name), Form::Share | Form::Device | Form::DeviceRoot) {
            return None;
        }
        let trimmed = trim_end(name, b". ");
        let trimmed = match trimmed {
            [before @ .., colon] if colon.is(b':') && !before.is_empty() => trim_end(before, b". "),
            _ => trimmed,
        };
        let last = last_component(trimmed);
        match self {
            Self::Windows10 => {
                let end = last.iter().position(|unit| unit.is(b'.') || unit.is(b':'));
                let stem = trim_end(&last[..end.unwrap_or(last.len())], b" ");
                names_device(stem).then_some(stem)
            }
            Self::Windows11 => {
                let alone = last.len() == trimmed.len() && names_device(last);
                (alone || equals(last, b"NUL")).then_some(last)
            }
        }
    }
}

/// Whether `stem` is the name of a device, and nothing more than that.
pub(crate) fn names_device<U: Unit>(stem: &[U]) -> bool {
    match stem.len() {
        3 => [b"CON", b"PRN", b"AUX", b"NUL"].iter().any(|device| equals(stem, *device)),
        4 | 5 => names_port(stem),
        6 => equals(stem, b"CONIN$"),
        7 => equals(stem, b"CONOUT$"),
        _ => false,
    }
}

/// `COM` or `LPT` with a digit from 1 to 9, or one of `¹`, `²` and `³`.
fn names_port<U: Unit>(stem: &[U]) -> bool {
    let (port, digit) = stem.split_at(3);
    let is_digit = match digit {
        [digit] if matches!(digit.ascii(), b'1'..=b'9') => true,
        digit => U::superscript(digit) == Some(digit.len()),
    };
    is_digit && (equals(port, b"COM") || equals(port, b"LPT"))
}

/// What stands behind the last separator, or behind the drive.
fn last_component<U: Unit>(name: &[U]) -> &[U] {
    match name.iter().rposition(|unit| unit.separates()) {
        Some(separator) => &name[separator + 1..],
        None => match Form::of(name) {
            Form::DriveRelative { letter } => &name[letter + 1..],
            _ => name,
        },
    }
}

/// Whether `name` spells `ascii`, in any case.
pub(super) fn equals<U: Unit>(name: &[U], ascii: &[u8]) -> bool {
    name.len() == ascii.len()
        && name.iter().zip(ascii).all(|(unit, byte)| unit.ascii().eq_ignore_ascii_case(byte))
}

/// `name` without the units at its end that are among `ascii`.
fn trim_end<'a, U: Unit>(name: &'a [U], ascii: &[u8]) -> &'a [U] {
    let kept = name.iter().rposition(|unit| !ascii.contains(&unit.ascii()));
    &name[..kept.map_or(0, |last| last + 1)]
}
