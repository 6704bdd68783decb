//! Queries to the disk on Windows. Paths are UTF-8 with `/`, as Ruby has them.

use std::borrow::Cow;
use std::fs::File;
use std::path::{Path, PathBuf};

use thruway_pack::Stamp;
use thruway_resolve::{native, wtf8};
use thruway_sys::nt::{Entries, EntryKind, Folder};
use thruway_sys::nt_file::{self, Access, FileState};

use super::{FolderEntry, NAMES_MAX, NoStatus};
use crate::listing::NameKind;
use crate::path;

/// The state of a file at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Status {
    state: FileState,
    /// Whether the file was opened for reading.
    pub(crate) is_readable: bool,
}

/// Returns the state of the file at a path. A link is examined itself.
pub(crate) fn status(path: &[u8]) -> Result<Status, NoStatus> {
    status_by(path, Access::Attributes)
}

/// As [`status`], and proves that this process may read the file.
pub(crate) fn status_for_reading(path: &[u8]) -> Result<Status, NoStatus> {
    status_by(path, Access::Content)
}

fn status_by(path: &[u8], access: Access) -> Result<Status, NoStatus> {
    let nt_path = nt_path(path).ok_or(NoStatus::Unknown)?;
    match nt_file::state_of(&nt_path, access) {
        Ok(mut state) => {
            // The root of a drive is no link, even if the volume that it stands for is mounted.
            state.kind.is_link &= path::split(path).is_some();
            Ok(Status { state, is_readable: access == Access::Content })
        }
        Err(status) if status.is_missing() => Err(NoStatus::Missing),
        Err(_) => Err(NoStatus::Unknown),
    }
}

/// Returns the state of the file to which a path leads, provided that this process may read it.
pub(crate) fn status_of_target(path: &[u8]) -> Option<Status> {
    let nt_path = nt_path(path)?;
    let access = if path::split(path).is_none() { Access::Attributes } else { Access::Content };
    let state = nt_file::state_of_target(&nt_path, access);
    let state = state.or_else(|_| nt_file::state_of_target(&nt_path, Access::Attributes)).ok()?;
    Some(Status { state, is_readable: access == Access::Content })
}

pub(crate) fn status_of_file(file: &File) -> Option<Status> {
    let state = nt_file::state_of_file(file).ok()?;
    Some(Status { state, is_readable: true })
}

pub(crate) fn stamp(status: &Status) -> Stamp {
    stamp_of(&status.state)
}

fn stamp_of(state: &FileState) -> Stamp {
    Stamp::of_file_times(state.size, [state.write_time, state.change_time], state.id)
}

/// Returns the kind of the file. A folder of a file system without change times is of another kind, since its times
/// do not tell when its names change.
pub(crate) fn kind(status: &Status) -> NameKind {
    match kind_of(status.state.kind) {
        NameKind::Folder if status.state.change_time == 0 => NameKind::Other,
        kind => kind,
    }
}

fn kind_of(kind: EntryKind) -> NameKind {
    match kind {
        EntryKind { is_link: true, .. } => NameKind::Link,
        EntryKind { is_directory: true, .. } => NameKind::Folder,
        EntryKind { .. } => NameKind::File,
    }
}

/// Whether two files of one volume are the same, as far as the volume numbers its files.
pub(crate) fn is_same_file(one: &Status, other: &Status) -> bool {
    one.state.id != 0 && one.state.id == other.state.id
}

/// Whether the path by which the file was examined has no links on the way; `false` if that is unknown.
pub(crate) fn is_at_its_path(status: &Status) -> bool {
    status.state.is_at_its_path
}

pub(crate) fn has_other_links(status: &Status) -> bool {
    status.state.links > 1
}

/// Returns `None`: the target of a link on Windows has several forms, so Ruby follows it.
pub(crate) fn read_link(_path: &[u8]) -> Option<Vec<u8>> {
    None
}

/// Opens a file for reading.
pub(crate) fn open(path: &[u8]) -> Option<File> {
    File::open(native_path(path)).ok()
}

/// Reads a folder's stamp and then its names; `None` if there are too many names, or if the folder cannot be
/// read.
pub(crate) fn read_folder(path: &[u8]) -> Option<(Stamp, Vec<FolderEntry>)> {
    let nt_path = nt_path(path)?;
    let folder = Folder::open(&nt_path).ok()?;
    let stamp = stamp_of(&folder.state().ok()?);
    let (mut entries, mut names) = (Entries::new(), Vec::new());
    while folder.query(None, &mut entries).ok()? {
        entries.for_each_kind(|name, kind| {
            let name = wtf8::from_wide(name);
            if !matches!(&name[..], b"." | b"..") {
                names.push((name, kind_of(kind)));
            }
        });
        if names.len() > NAMES_MAX {
            return None;
        }
    }
    Some((stamp, names))
}

/// Returns a number in place of a user ID: rights are proved by opening files.
pub(crate) fn user() -> u32 {
    0
}

pub(crate) fn native_path(path: &[u8]) -> Cow<'_, Path> {
    Cow::Owned(PathBuf::from(native::os_string(path.to_vec())))
}

/// Returns the bytes of a path, with `/` between its components.
pub(crate) fn path_bytes(path: &Path) -> Cow<'_, [u8]> {
    let mut bytes = native::bytes(path.as_os_str()).into_owned();
    bytes.iter_mut().filter(|byte| **byte == b'\\').for_each(|byte| *byte = b'/');
    Cow::Owned(bytes)
}

/// Returns the bytes of a path that the system has made: `C:/a` for `\\?\C:\a`.
pub(crate) fn real_path_bytes(path: &Path) -> Cow<'_, [u8]> {
    let bytes = path_bytes(path);
    match bytes.strip_prefix(b"//?/").filter(|rest| rest.get(1) == Some(&b':')) {
        Some(rest) => Cow::Owned(rest.to_vec()),
        None => bytes,
    }
}

/// Whether a path is one of the devices that every program writes to, and that are no files.
pub(crate) fn is_device(path: &[u8]) -> bool {
    const DEVICES: [&[u8]; 4] = [b"nul", b"con", b"conin$", b"conout$"];
    DEVICES.iter().any(|device| path.eq_ignore_ascii_case(device))
}

/// Returns the NT path of a clean path.
fn nt_path(path: &[u8]) -> Option<Vec<u16>> {
    if !path::is_clean(path) {
        return None;
    }
    let mut units: Vec<u16> = r"\??\".encode_utf16().collect();
    let text = std::str::from_utf8(path).ok()?;
    units.extend(
        text.encode_utf16().map(
            |unit| {
                if unit == u16::from(b'/') { u16::from(b'\\') } else { unit }
            },
        ),
    );
    Some(units)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_the_system_has_the_form_of_rubys() {
        let bytes = |path: &str| real_path_bytes(Path::new(path)).into_owned();
        assert_eq!(bytes(r"\\?\C:\a\b"), b"C:/a/b");
        assert_eq!(bytes(r"\\?\UNC\host\share"), b"//?/UNC/host/share");
        assert_eq!(bytes(r"C:\a"), b"C:/a");
    }

    #[test]
    fn devices_are_no_files() {
        assert!(is_device(b"NUL") && is_device(b"conout$"));
        assert!(!is_device(b"C:/nul.d") && !is_device(b"C:/a"));
    }
}
