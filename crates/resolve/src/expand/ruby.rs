//! Ruby's `File.expand_path`, which adds rules to those of either system.
//!
//! Sources: `file.c` and `win32/file.c` of Ruby 3.1 to 3.3, and Ruby's own tests, whose cases are rows of
//! `tests/vectors/ruby_*.tsv`. The system is never asked: the caller passes homes and folders.

use super::windows::{self, Form};
use super::{Devices, Flavour};
use crate::Error;

/// The environment that Ruby would query from the system.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    /// The working directory, which is absolute.
    pub current: &'a [u8],
    /// The value of `HOME` (on Windows, of its substitutes too), if set, for `~`.
    pub home: Option<&'a [u8]>,
    /// Returns the home of a user, if that user exists, for `~user`. Ruby for Windows knows no users.
    pub home_of: &'a dyn Fn(&[u8]) -> Option<Vec<u8>>,
    /// The working directories of other drives, on Windows.
    pub drive_bases: &'a [&'a [u8]],
    /// The rules for device names, on Windows.
    pub devices: Devices,
}

impl<'a> Surroundings<'a> {
    /// Creates an environment with a working directory only: no home, no users, no other drives.
    #[must_use]
    pub fn new(current: &'a [u8]) -> Self {
        let devices = Devices::default();
        Self { current, home: None, home_of: &|_| None, drive_bases: &[], devices }
    }
}

impl std::fmt::Debug for Surroundings<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = formatter.debug_struct("Surroundings");
        text.field("current", &self.current).field("home", &self.home).finish_non_exhaustive()
    }
}

/// Implements `File.expand_path(name, base)`. Without `base`, the working directory is used.
///
/// # Errors
/// Texts of Ruby's `ArgumentError`: a NUL byte, an unknown or relative home, or an unknown user.
pub fn expand_path(
    flavour: Flavour,
    name: &[u8],
    base: Option<&[u8]>,
    surroundings: &Surroundings<'_>,
) -> Result<Vec<u8>, Error> {
    if name.contains(&0) || base.is_some_and(|base| base.contains(&0)) {
        return Err(Error::ruby(name, "path name contains null byte"));
    }
    match flavour {
        Flavour::Posix => expand_posix(name, base, surroundings),
        Flavour::Windows => expand_windows(name, base, surroundings),
    }
}

/// Splits `~rest` and `~user/rest` into the user (empty for the caller's own home) and the rest.
fn split_tilde(flavour: Flavour, name: &[u8]) -> Option<(&[u8], &[u8])> {
    let after = name.strip_prefix(b"~")?;
    let end = after.iter().position(|byte| flavour.separates(*byte)).unwrap_or(after.len());
    Some(after.split_at(end))
}

/// Expands a name on POSIX. The folder at which a name starts is taken unchanged, and only the relative part
/// is examined, so `//` at the start of a name and `..` inside `HOME` stay.
fn expand_posix(
    name: &[u8],
    base: Option<&[u8]>,
    surroundings: &Surroundings<'_>,
) -> Result<Vec<u8>, Error> {
    let room = name.len() + 2;
    if let Some((user, rest)) = split_tilde(Flavour::Posix, name) {
        let home = posix_home(name, user, surroundings)?;
        return Ok(expand_posix_from(with_room(&home, room), rest));
    }
    if name.first() == Some(&b'/') {
        let slashes = name.iter().take_while(|byte| **byte == b'/').count();
        return Ok(expand_posix_from(with_room(&name[..slashes], room), &name[slashes..]));
    }
    let start = match base {
        Some(base) => {
            let mut start = expand_posix(base, None, surroundings)?;
            start.reserve(room);
            start
        }
        None => with_room(surroundings.current, room),
    };
    Ok(expand_posix_from(start, name))
}

fn with_room(start: &[u8], room: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(start.len() + room);
    bytes.extend_from_slice(start);
    bytes
}

fn posix_home(name: &[u8], user: &[u8], surroundings: &Surroundings<'_>) -> Result<Vec<u8>, Error> {
    let of_user = |text: &str| format!("{text} {}", String::from_utf8_lossy(user));
    if user.is_empty() {
        let home = surroundings.home.ok_or_else(|| Error::ruby(name, NO_HOME))?;
        let is_absolute = home.first() == Some(&b'/');
        return if is_absolute { Ok(home.to_vec()) } else { Err(Error::ruby(name, NOT_ABSOLUTE)) };
    }
    let missing = || Error::ruby(name, format!("{} doesn't exist", of_user("user")));
    let home = (surroundings.home_of)(user).ok_or_else(missing)?;
    let is_absolute = home.first() == Some(&b'/');
    if is_absolute { Ok(home) } else { Err(Error::ruby(name, of_user("non-absolute home of"))) }
}

const NO_HOME: &str = "couldn't find HOME environment -- expanding `~'";
const NOT_ABSOLUTE: &str = "non-absolute home";

fn expand_posix_from(mut expanded: Vec<u8>, rest: &[u8]) -> Vec<u8> {
    if expanded.last() == Some(&b'/') {
        expanded.pop();
    }
    for component in rest.split(|byte| *byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." => pop_posix(&mut expanded),
            _ => {
                expanded.push(b'/');
                expanded.extend_from_slice(component);
            }
        }
    }
    if expanded.iter().all(|byte| *byte == b'/') {
        expanded.push(b'/');
    }
    expanded
}

/// Removes the last component with all slashes before it.
fn pop_posix(expanded: &mut Vec<u8>) {
    let is_slash = |byte: &u8| *byte == b'/';
    let Some(last) = expanded.iter().rposition(|byte| !is_slash(byte)) else { return };
    let Some(slash) = expanded[..last].iter().rposition(is_slash) else { return };
    let before = expanded[..slash].iter().rposition(|byte| !is_slash(byte));
    expanded.truncate(before.map_or(0, |end| end + 1));
}

/// Expands a name on Windows, where the name and its folder are joined as text before the system's rules
/// apply.
fn expand_windows(
    name: &[u8],
    base: Option<&[u8]>,
    surroundings: &Surroundings<'_>,
) -> Result<Vec<u8>, Error> {
    let joined = join_windows(name, base, surroundings)?;
    let place = windows::Place {
        base: surroundings.current,
        drive_bases: surroundings.drive_bases,
        devices: surroundings.devices,
    };
    // Only a name made of spaces has no full path. Ruby treats it like the empty name.
    let full = place.full_path(&joined).unwrap_or_else(|| surroundings.current.to_vec());
    Ok(tidy_windows(full))
}

/// The parts to join, any of which may be empty.
#[derive(Default)]
struct Parts<'a> {
    home: &'a [u8],
    drive: &'a [u8],
    base: &'a [u8],
    name: &'a [u8],
}

fn join_windows(
    name: &[u8],
    base: Option<&[u8]>,
    surroundings: &Surroundings<'_>,
) -> Result<Vec<u8>, Error> {
    let mut parts = Parts { name, ..Parts::default() };
    match (Form::of(name), split_tilde(Flavour::Windows, name)) {
        (_, Some((b"", rest))) => {
            parts.home = windows_home(name, surroundings)?;
            parts.name = rest.get(1..).unwrap_or_default();
        }
        (Form::Drive { .. }, _) => {}
        (Form::DriveRelative { letter }, _) => {
            (parts.drive, parts.name) = name.split_at(letter + 1);
            parts.add_base(base.unwrap_or_default(), surroundings)?;
        }
        (_, Some((user, _))) => return Err(no_user(name, user)),
        _ => parts.add_base(base.unwrap_or_default(), surroundings)?,
    }
    Ok(parts.joined())
}

impl<'a> Parts<'a> {
    /// Adds the part of the base that remains in effect: nothing if the name is on another drive, only the
    /// base's drive or share if the name begins with a separator.
    fn add_base(&mut self, base: &'a [u8], surroundings: &Surroundings<'a>) -> Result<(), Error> {
        let form = Form::of(self.name);
        let is_rooted = !matches!(form, Form::Relative | Form::DriveRelative { .. });
        match (Form::of(base), split_tilde(Flavour::Windows, base)) {
            (_, Some((b"", rest))) => {
                self.home = windows_home(base, surroundings)?;
                self.base = if is_rooted { b"" } else { rest.get(1..).unwrap_or_default() };
            }
            (Form::Drive { letter } | Form::DriveRelative { letter }, _) => {
                let drive = &base[..=letter];
                if self.drive.is_empty() || drive.eq_ignore_ascii_case(self.drive) {
                    self.drive = b"";
                    self.base = if is_rooted { drive } else { base };
                }
            }
            (_, Some((user, _))) => return Err(no_user(base, user)),
            (Form::Share | Form::Device | Form::DeviceRoot, _) if is_rooted => {
                self.base = &base[..length_of_share(base)];
            }
            (_, None) => self.base = if is_rooted { b"" } else { base },
        }
        if matches!(form, Form::Share | Form::Device | Form::DeviceRoot) {
            self.base = b"";
        }
        Ok(())
    }

    fn joined(&self) -> Vec<u8> {
        let Self { home, drive, base, name } = *self;
        let mut joined = Vec::with_capacity(home.len() + drive.len() + base.len() + name.len() + 3);
        joined.extend_from_slice(home);
        if !push_separator(&mut joined) {
            joined.extend_from_slice(drive);
        }
        if !base.is_empty() {
            joined.extend_from_slice(base);
            push_separator(&mut joined);
        }
        joined.extend_from_slice(if name.is_empty() { b"." } else { name });
        joined
    }
}

/// Adds a separator if necessary. Returns whether it was.
fn push_separator(joined: &mut Vec<u8>) -> bool {
    let is_needed = !matches!(joined.last(), None | Some(b'\\' | b'/' | b':'));
    if is_needed {
        joined.push(b'\\');
    }
    is_needed
}

/// Returns the length of `//host/share` without the separator after it; the whole length if the name is
/// shorter.
fn length_of_share(base: &[u8]) -> usize {
    let is_separator = |(_, byte): &(usize, &u8)| Flavour::Windows.separates(**byte);
    let second = base.iter().enumerate().skip(2).filter(is_separator).nth(1);
    second.map_or(base.len(), |(end, _)| end)
}

fn no_user(name: &[u8], user: &[u8]) -> Error {
    Error::ruby(name, format!("can't find user {}", String::from_utf8_lossy(user)))
}

fn windows_home<'a>(name: &[u8], surroundings: &Surroundings<'a>) -> Result<&'a [u8], Error> {
    let home = surroundings.home.ok_or_else(|| Error::ruby(name, NO_HOME))?;
    match Form::of(home) {
        Form::Relative | Form::Rooted => Err(Error::ruby(name, NOT_ABSOLUTE)),
        _ => Ok(home),
    }
}

/// Removes a trailing separator or dot and the default stream, and turns `\` into `/`.
fn tidy_windows(mut full: Vec<u8>) -> Vec<u8> {
    if let [.., before, b'\\'] = full.as_slice()
        && *before != b':'
        && full.len() > 2
    {
        full.pop();
    }
    if full.last() == Some(&b'.') {
        full.pop();
    }
    full.truncate(length_without_default_stream(&full));
    for byte in full.iter_mut().filter(|byte| **byte == b'\\') {
        *byte = b'/';
    }
    full
}

/// Returns the length without the default stream: `a::$DATA` becomes `a`, and `a:b:$DATA` becomes `a:b`.
fn length_without_default_stream(full: &[u8]) -> usize {
    const STREAM: &[u8] = b":$DATA";
    let Some(end) = full.len().checked_sub(STREAM.len()).filter(|end| *end > 0) else {
        return full.len();
    };
    let (before, stream) = full.split_at(end);
    if !stream.eq_ignore_ascii_case(STREAM) {
        return full.len();
    }
    if before.last() == Some(&b':') {
        return end - 1;
    }
    let component = before.rsplit(|byte| *byte == b'\\').next().unwrap_or_default();
    if component.contains(&b':') { end } else { full.len() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thruway_testing::table::{byte_rows, show};

    fn check(flavour: Flavour, vectors: &str, surroundings: &Surroundings<'_>) {
        for row in byte_rows(vectors) {
            let [name, base, expected] = row.as_slice() else { panic!("three columns: {row:?}") };
            let base = (base != b"-").then_some(base.as_slice());
            let answer = match expand_path(flavour, name, base, surroundings) {
                Ok(path) => show(&path),
                Err(error) => format!("!{error}"),
            };
            assert_eq!(answer, show(expected).replace("\\'", "'"), "{} in {base:?}", show(name));
        }
    }

    #[test]
    fn every_vector_of_ruby_on_posix_gives_its_answer() {
        let home_of = |user: &[u8]| (user == b"daemon").then(|| b"/usr/sbin".to_vec());
        let surroundings = Surroundings {
            home: Some(b"/home/ruby"),
            home_of: &home_of,
            ..Surroundings::new(b"/")
        };
        let vectors = include_str!("../../tests/vectors/ruby_posix.tsv");
        check(Flavour::Posix, vectors, &surroundings);
    }

    #[test]
    fn every_vector_of_ruby_on_windows_gives_its_answer() {
        let surroundings =
            Surroundings { home: Some(b"C:/UserHome"), ..Surroundings::new(br"C:\") };
        let vectors = include_str!("../../tests/vectors/ruby_windows.tsv");
        check(Flavour::Windows, vectors, &surroundings);
    }

    #[test]
    fn a_home_that_is_missing_or_relative_is_an_error_in_rubys_words() {
        let message = |flavour, home, name: &str| {
            let surroundings = Surroundings { home, ..Surroundings::new(b"/") };
            expand_path(flavour, name.as_bytes(), None, &surroundings).unwrap_err().to_string()
        };
        for flavour in [Flavour::Posix, Flavour::Windows] {
            let missing = message(flavour, None, "~/a");
            assert_eq!(missing, "couldn't find HOME environment -- expanding `~'");
            assert_eq!(message(flavour, Some(b"x"), "~"), "non-absolute home");
        }
        assert_eq!(message(Flavour::Windows, Some(b"/x"), "~"), "non-absolute home");
    }

    #[test]
    fn a_share_may_be_the_home_on_windows() {
        let surroundings = Surroundings { home: Some(b"//UserHome"), ..Surroundings::new(br"C:\") };
        let home = expand_path(Flavour::Windows, b"~", None, &surroundings).unwrap();
        assert_eq!(home, b"//UserHome");
    }

    #[test]
    fn the_home_of_a_user_must_be_absolute_too() {
        let home_of = |_: &[u8]| Some(b"relative".to_vec());
        let surroundings = Surroundings { home_of: &home_of, ..Surroundings::new(b"/") };
        let error = expand_path(Flavour::Posix, b"~bob/x", None, &surroundings).unwrap_err();
        assert_eq!(error.to_string(), "non-absolute home of bob");
    }
}
