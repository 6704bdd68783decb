//! Expansion on Windows: the full-path rules of `GetFullPathNameW`, implemented without calling the function.
//!
//! Generic over [`Unit`], so that the same rules apply to WTF-8 and UTF-16. Where Wine's version of the
//! function differs from Windows, this implementation follows Windows; docs/reference/names.md lists the
//! differences.

pub use super::form::Form;
use super::{Devices, Unit};

/// The folders of a process, relative to which names are expanded.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a, U> {
    /// The working directory: absolute, on a drive or a share.
    pub base: &'a [U],
    /// The working directories of other drives, each with its drive: `D:\x` for `D:name`. Names on other
    /// drives start at the root.
    pub drive_bases: &'a [&'a [U]],
    /// The rules for device names.
    pub devices: Devices,
}

/// Implements [`expand`](super::expand) for [`Flavour::Windows`](super::Flavour::Windows).
pub(super) fn expand(name: &[u8], base: &[u8]) -> Vec<u8> {
    if Form::of(base).is_absolute() {
        Place::new(base).expand(name)
    } else {
        Place::new(&expand(base, br"C:\")).expand(name)
    }
}

/// Whether `name` begins with `\\?\` or `\\.\`, which the system uses unchanged.
fn is_final<U: Unit>(name: &[U]) -> bool {
    Form::of(name) == Form::Device && !name[..4].iter().any(|unit| unit.is(b'/'))
}

impl<'a, U: Unit> Place<'a, U> {
    /// Creates a place with a working directory only, and the device rules of Windows 11.
    #[must_use]
    pub fn new(base: &'a [U]) -> Self {
        Self { base, drive_bases: &[], devices: Devices::default() }
    }

    /// Returns the absolute form of `name`: its [`full_path`](Self::full_path), except that the empty name is
    /// the base, and a name that begins with `\\?\` or `\\.\` stays unchanged.
    #[must_use]
    pub fn expand(&self, name: &[U]) -> Vec<U> {
        if is_final(name) {
            return name.to_vec();
        }
        let base = || self.full_path(&[U::of(b'.')]);
        self.full_path(name).or_else(base).unwrap_or_default()
    }

    /// Returns the full form of `name`, as `GetFullPathNameW` does; `None` for an empty name or one made of
    /// spaces, which that function refuses.
    ///
    /// Separators become a single `\`, and `.` and `..` are resolved. A single trailing dot of an inner
    /// component is stripped, as are all trailing dots and spaces of the name. A trailing separator stays.
    #[must_use]
    pub fn full_path(&self, name: &[U]) -> Option<Vec<U>> {
        if name.iter().all(|unit| unit.is(b' ')) {
            return None;
        }
        if let Some(device) = self.devices.device_of(name) {
            return Some(device_path(device));
        }
        let form = Form::of(name);
        if form == Form::DeviceRoot {
            return Some(device_path(&[]));
        }
        let mut full = FullPath::with_capacity(self.base.len() + name.len() + 4);
        match form {
            Form::Rooted => full.push_root_of(self.base),
            Form::Relative => full.push_base(self.base),
            Form::DriveRelative { letter } => match self.base_of_drive(&name[..letter]) {
                Some(base) => full.push_base(base),
                None => full.push_drive(&name[..letter]),
            },
            _ => full.push_root(&name[..root_length(name)]),
        }
        let components = match form {
            Form::Rooted | Form::Relative => name,
            Form::DriveRelative { letter } => &name[letter + 1..],
            _ => &name[root_length(name)..],
        };
        full.push_components(components, false);
        Some(full.finish())
    }

    /// Returns the working directory of the drive `letter`, if known.
    fn base_of_drive(&self, letter: &[U]) -> Option<&'a [U]> {
        let is_there = |base: &&[U]| match Form::of(base) {
            Form::Drive { letter: length } => same_letters(&base[..length], letter),
            _ => false,
        };
        std::iter::once(&self.base).chain(self.drive_bases).copied().find(is_there)
    }
}

/// Whether two drive letters are equal, ignoring the case of ASCII letters.
fn same_letters<U: Unit>(one: &[U], other: &[U]) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).all(|(a, b)| {
            a == b || (a.ascii() != 0xFF && a.ascii().eq_ignore_ascii_case(&b.ascii()))
        })
}

/// Returns `\\.\device`.
fn device_path<U: Unit>(device: &[U]) -> Vec<U> {
    br"\\.\".iter().map(|byte| U::of(*byte)).chain(device.iter().copied()).collect()
}

/// Returns the length of the root of an absolute name, which `..` cannot leave: `C:\`, `\\host\share\`.
fn root_length<U: Unit>(name: &[U]) -> usize {
    match Form::of(name) {
        Form::Drive { letter } => letter + 2,
        Form::Device => 4,
        Form::Share => share_length(name),
        _ => 0,
    }
}

/// Returns the length of `\\host\share\`. A share cannot be named `.` or `..`.
fn share_length<U: Unit>(name: &[U]) -> usize {
    let host = 2 + component_length(&name[2..]);
    let share = host + separators_length(&name[host..]);
    let end = share + component_length(&name[share..]);
    if is_dots(&name[share..end]) { share } else { end + separators_length(&name[end..]) }
}

fn component_length<U: Unit>(name: &[U]) -> usize {
    name.iter().position(|unit| unit.separates()).unwrap_or(name.len())
}

fn separators_length<U: Unit>(name: &[U]) -> usize {
    name.iter().position(|unit| !unit.separates()).unwrap_or(name.len())
}

/// Whether `component` is `.` or `..`.
fn is_dots<U: Unit>(component: &[U]) -> bool {
    matches!(component.len(), 1 | 2) && component.iter().all(|unit| unit.is(b'.'))
}

/// A full path under construction.
struct FullPath<U> {
    units: Vec<U>,
    /// The length of the root, which `..` does not remove.
    root: usize,
    /// Whether the last component was `.` or `..`.
    ends_in_dots: bool,
}

impl<U: Unit> FullPath<U> {
    fn with_capacity(capacity: usize) -> Self {
        Self { units: Vec::with_capacity(capacity), root: 0, ends_in_dots: false }
    }

    /// Pushes the root of a drive without a working directory.
    fn push_drive(&mut self, letter: &[U]) {
        self.units.extend_from_slice(letter);
        self.units.extend([U::of(b':'), U::of(b'\\')]);
        self.root = self.units.len();
    }

    /// Pushes a root. Separators become single, except for the two at the start of a share.
    fn push_root(&mut self, root: &[U]) {
        for unit in root {
            if !unit.separates() {
                self.units.push(*unit);
            } else if self.units.len() <= 2 || !self.ends_in_separator() {
                self.units.push(U::of(b'\\'));
            }
        }
        if matches!(self.units.as_slice(), [_, _, a, b] if is_dots(&[*a, *b])) {
            self.units.truncate(2);
        }
        self.root = self.units.len();
    }

    /// Pushes the drive or share of `base`, for a name that begins with a separator.
    fn push_root_of(&mut self, base: &[U]) {
        self.push_root(&base[..root_length(base)]);
        self.ensure_separator();
        self.root = self.units.len();
    }

    /// Pushes a folder that will be followed by components.
    fn push_base(&mut self, base: &[U]) {
        self.push_root_of(base);
        self.push_components(&base[root_length(base)..], true);
    }

    /// Pushes the components of `rest`. `has_more` tells whether further components will be pushed after them: then the
    /// last one counts as an inner component, too.
    fn push_components(&mut self, mut rest: &[U], has_more: bool) {
        loop {
            rest = &rest[separators_length(rest)..];
            if rest.is_empty() {
                return;
            }
            let (component, after) = rest.split_at(component_length(rest));
            rest = after;
            let is_inner = has_more || !rest.is_empty();
            self.ends_in_dots = is_dots(component) && !is_inner;
            match component.len() {
                1 if is_dots(component) => {}
                2 if is_dots(component) => self.pop(),
                _ => self.push(component, is_inner),
            }
        }
    }

    fn push(&mut self, component: &[U], is_inner: bool) {
        self.ensure_separator();
        self.units.extend_from_slice(component);
        if is_inner {
            self.trim_single_dot(component);
            self.units.push(U::of(b'\\'));
        }
    }

    /// Strips the trailing dot of an inner component, but leaves two or more trailing dots.
    fn trim_single_dot(&mut self, component: &[U]) {
        if let [.., before, dot] = component
            && dot.is(b'.')
            && !before.is(b'.')
        {
            self.units.pop();
        }
    }

    /// Removes the last component, and keeps the separator before it.
    fn pop(&mut self) {
        let end = self.units.len() - usize::from(self.ends_in_separator());
        let parent = self.units[..end].iter().rposition(|unit| unit.separates());
        self.units.truncate(parent.map_or(0, |separator| separator + 1).max(self.root));
    }

    fn ends_in_separator(&self) -> bool {
        self.units.last().is_some_and(|unit| unit.separates())
    }

    fn ensure_separator(&mut self) {
        if !self.ends_in_separator() {
            self.units.push(U::of(b'\\'));
        }
    }

    fn finish(mut self) -> Vec<U> {
        if self.ends_in_dots && self.units.len() > self.root && self.ends_in_separator() {
            self.units.pop();
        }
        let kept = self.units[self.root..].iter().rposition(|u| !u.is(b'.') && !u.is(b' '));
        self.units.truncate(self.root + kept.map_or(0, |last| last + 1));
        self.units
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use thruway_testing::table::{byte_rows, show};

    const PLACE: Place<'static, u8> =
        Place { base: br"C:\w", drive_bases: &[br"Z:\zc"], devices: Devices::Windows11 };

    #[test]
    fn every_vector_gives_its_full_path() {
        for row in byte_rows(include_str!("../../tests/vectors/windows_full_path.tsv")) {
            let [name, expected] = row.as_slice() else { panic!("two columns: {row:?}") };
            let full = PLACE.full_path(name).unwrap_or(b"!".to_vec());
            assert_eq!(show(&full), show(expected), "{}", show(name));
        }
    }

    #[test]
    fn devices_follow_the_rules_of_their_system() {
        for row in byte_rows(include_str!("../../tests/vectors/windows_devices.tsv")) {
            let [name, ten, eleven] = row.as_slice() else { panic!("three columns: {row:?}") };
            let full = |devices| show(&Place { devices, ..PLACE }.full_path(name).unwrap());
            assert_eq!(
                [full(Devices::Windows10), full(Devices::Windows11)],
                [show(ten), show(eleven)],
                "{}",
                show(name)
            );
        }
    }

    #[test]
    fn a_name_in_the_namespace_of_devices_is_left_as_it_is() {
        for name in [br"\\?\C:\a\..\b. /c".as_slice(), br"\\.\COM1\", br"\\?\nul"] {
            assert_eq!(show(&expand(name, br"C:\w")), show(name));
        }
    }

    #[test]
    fn the_empty_name_is_the_base_and_a_base_without_a_drive_is_on_c() {
        assert_eq!(expand(b"", br"C:\w\"), br"C:\w");
        assert_eq!(expand(b"  ", br"\\host\share"), br"\\host\share\");
        assert_eq!(expand(b"a", br"w\x"), br"C:\w\x\a");
        assert_eq!(expand(b"a", b""), br"C:\a");
    }

    proptest! {
        #[test]
        fn both_encodings_give_the_same_answer(
            name in "[CcZé😀:./\\\\ ?nulNUL1~]{0,14}",
            base in prop::sample::select(vec![r"C:\w", r"\\host\share\x", r"C:\w.\x", r"\\?\C:\w", r"\\h"]),
        ) {
            let wide: Vec<u16> = name.encode_utf16().collect();
            let wide_base: Vec<u16> = base.encode_utf16().collect();
            let bytes = Place { base: base.as_bytes(), ..PLACE }.full_path(name.as_bytes());
            let zc: Vec<u16> = r"Z:\zc".encode_utf16().collect();
            let units = Place {
                base: &wide_base, drive_bases: &[&zc], devices: Devices::Windows11
            }.full_path(&wide);
            let bytes = bytes.map(|bytes| String::from_utf8(bytes).unwrap());
            let units = units.map(|units| String::from_utf16(&units).unwrap());
            prop_assert_eq!(bytes, units);
        }
    }
}
