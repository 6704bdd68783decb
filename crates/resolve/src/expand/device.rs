//! Names of Windows devices: `nul`, `con.txt`, `com1`.
//!
//! The rules of both systems are from "Special DOS Device names" in the book of the omnipath crate. The list
//! of names is also in Microsoft's "Naming Files, Paths, and Namespaces".

use super::Unit;
use super::form::Form;

/// The rules by which a name denotes a device. Windows 11 changed them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Devices {
    /// Up to Windows 10 and Server 2022: the last component of any name, up to its first dot or colon, except
    /// on a share. `C:\x\nul.txt` is `\\.\nul`.
    Windows10,
    /// Since Windows 11: only a name without anything else. `C:\x\con` and `nul.txt` are files. `nul` also
    /// counts as the last component (if its folder exists, which is not checked here).
    #[default]
    Windows11,
}

impl Devices {
    /// Returns the device that `name` denotes, as spelled in `name`; `None` if it denotes no device.
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

/// Whether `stem` is exactly the name of a device.
pub(crate) fn names_device<U: Unit>(stem: &[U]) -> bool {
    match stem.len() {
        3 => [b"CON", b"PRN", b"AUX", b"NUL"].iter().any(|device| equals(stem, *device)),
        4 | 5 => names_port(stem),
        6 => equals(stem, b"CONIN$"),
        7 => equals(stem, b"CONOUT$"),
        _ => false,
    }
}

/// Whether `stem` is `COM` or `LPT` with a digit from 1 to 9, or one of `¹`, `²` and `³`.
fn names_port<U: Unit>(stem: &[U]) -> bool {
    let (port, digit) = stem.split_at(3);
    let is_digit = match digit {
        [digit] if matches!(digit.ascii(), b'1'..=b'9') => true,
        digit => U::superscript(digit) == Some(digit.len()),
    };
    is_digit && (equals(port, b"COM") || equals(port, b"LPT"))
}

/// Returns the part after the last separator, or after the drive.
fn last_component<U: Unit>(name: &[U]) -> &[U] {
    match name.iter().rposition(|unit| unit.separates()) {
        Some(separator) => &name[separator + 1..],
        None => match Form::of(name) {
            Form::DriveRelative { letter } => &name[letter + 1..],
            _ => name,
        },
    }
}

/// Whether `name` equals `ascii` in any case.
pub(super) fn equals<U: Unit>(name: &[U], ascii: &[u8]) -> bool {
    name.len() == ascii.len()
        && name.iter().zip(ascii).all(|(unit, byte)| unit.ascii().eq_ignore_ascii_case(byte))
}

/// Returns `name` without trailing units that are in `ascii`.
fn trim_end<'a, U: Unit>(name: &'a [U], ascii: &[u8]) -> &'a [U] {
    let kept = name.iter().rposition(|unit| !ascii.contains(&unit.ascii()));
    &name[..kept.map_or(0, |last| last + 1)]
}
