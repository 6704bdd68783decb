//! What is known of folders, as it goes into the next pack.

use thruway_pack::Stamp;

use super::pack_view::PackView;
use super::table::{Folder, FolderTable, Names, State};
use crate::{kind, path};

/// A folder as it goes into a pack.
#[derive(Debug)]
pub(crate) struct KnownFolder<'a> {
    pub(crate) path: &'a [u8],
    pub(crate) real_path: &'a [u8],
    pub(crate) stamp: Stamp,
    /// Its names, if they were read and cannot have changed within the stamp since.
    pub(crate) names: Option<&'a [u8]>,
    /// Whether every user may search it and all folders above it, as far as modes say.
    pub(crate) is_open: bool,
    /// Whether the pack does not hold it, or other names.
    pub(crate) is_news: bool,
}

/// Every folder that was found.
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
            is_news: false,
        };
        Some(KnownFolder { is_news: is_news(pack, &known), ..known })
    })
}

/// The names that cannot have changed within the stamp since they were read.
fn names(folder: &Folder) -> Option<&[u8]> {
    match &folder.names {
        Names::Read(bytes) if !folder.stamp.is_racy(folder.read_ns) => Some(&bytes[..]),
        Names::Packed(listing) => Some(listing.as_bytes()),
        _ => None,
    }
}

/// Whether the folder and all those above it let every user search them.
fn is_open(table: &FolderTable, path: &[u8]) -> bool {
    let mut above =
        std::iter::successors(Some(path), |path| path::split(path).map(|(folder, _)| folder));
    above.all(|path| table.known(path).is_some_and(|id| table[id].is_open))
}

fn is_news(pack: &PackView, known: &KnownFolder<'_>) -> bool {
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
