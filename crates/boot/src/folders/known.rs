//! Folders, in the form in which they go into the next pack.

use thruway_pack::Stamp;

use super::pack_view::PackView;
use super::table::{Folder, FolderTable, Names, State};
use crate::{kind, path};

/// A folder for a pack.
#[derive(Debug)]
pub(crate) struct KnownFolder<'a> {
    pub(crate) path: &'a [u8],
    pub(crate) real_path: &'a [u8],
    pub(crate) stamp: Stamp,
    /// The names, if they were read and cannot have changed since without a new stamp.
    pub(crate) names: Option<&'a [u8]>,
    /// Whether every user may search the folder and all its parents, according to their modes.
    pub(crate) is_open: bool,
    /// Whether the pack lacks the folder, or holds other names.
    pub(crate) is_new: bool,
}

/// Returns every folder that was found.
pub(super) fn known<'a>(
    table: &'a FolderTable,
    pack: &'a PackView,
) -> impl Iterator<Item = KnownFolder<'a>> {
    table.iter().filter_map(move |folder| {
        let State::Folder(real) = folder.state else { return None };
        let known = KnownFolder {
            path: &folder.path,
            real_path: &table[real].path,
            stamp: folder.stamp,
            names: names(folder),
            is_open: is_open(table, &folder.path),
            is_new: false,
        };
        Some(KnownFolder { is_new: is_new(pack, &known), ..known })
    })
}

/// Returns the names, if they cannot have changed without a new stamp since they were read.
fn names(folder: &Folder) -> Option<&[u8]> {
    match &folder.names {
        Names::Read(bytes) if !folder.stamp.is_racy(folder.read_ns) => Some(&bytes[..]),
        Names::Packed(listing) => Some(listing.as_bytes()),
        _ => None,
    }
}

/// Whether the folder and all its parents let every user search them.
fn is_open(table: &FolderTable, path: &[u8]) -> bool {
    let mut above =
        std::iter::successors(Some(path), |path| path::split(path).map(|(folder, _)| folder));
    above.all(|path| table.known(path).is_some_and(|id| table[id].is_open))
}

fn is_new(pack: &PackView, known: &KnownFolder<'_>) -> bool {
    if known.path != known.real_path {
        let entry = pack.find(kind::ALIAS, known.path);
        return entry.and_then(|entry| entry.data()) != Some(known.real_path);
    }
    match (pack.find(kind::FOLDER, known.path), known.names) {
        (None, _) => true,
        (Some(entry), Some(names)) => entry.data() != Some(names),
        (Some(_), None) => false,
    }
}
