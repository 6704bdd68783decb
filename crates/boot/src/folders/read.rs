//! Reading of a folder's names.

use rustix::fs::{self, CWD, Dir, FileType, Mode, OFlags};
use thruway_pack::Stamp;

use crate::listing::NameKind;

/// The most names of a folder that is listed. Reading a larger one would cost more than it can save.
const NAMES_MAX: usize = 1 << 16;

/// A name in a folder, and its type.
type FolderEntry = (Vec<u8>, NameKind);

/// Reads a folder's stamp and then its names; `None` if there are too many names, or if the folder cannot be
/// read.
pub(crate) fn read_folder(path: &[u8]) -> Option<(Stamp, Vec<FolderEntry>)> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let open = fs::openat(CWD, path, flags, Mode::empty()).ok()?;
    let stamp = Stamp::of(&fs::fstat(&open).ok()?);
    let mut names = Vec::new();
    for entry in Dir::new(open).ok()? {
        let entry = entry.ok()?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            names.push((name.to_vec(), kind_of(entry.file_type())));
        }
        if names.len() > NAMES_MAX {
            return None;
        }
    }
    Some((stamp, names))
}

fn kind_of(file_type: FileType) -> NameKind {
    match file_type {
        FileType::RegularFile => NameKind::File,
        FileType::Directory => NameKind::Folder,
        FileType::Symlink => NameKind::Link,
        _ => NameKind::Other,
    }
}
