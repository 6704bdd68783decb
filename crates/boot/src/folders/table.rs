//! The table of folders that have been queried.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::ops::{Index, IndexMut};

use thruway_pack::Stamp;

use super::steady::is_steady;
use crate::listing::Listing;
use crate::path::{self, PathHasher};

/// The number of a folder in the table, which never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FolderId(u32);

/// All folders that have been queried.
#[derive(Debug, Default)]
pub(super) struct FolderTable {
    ids: HashMap<Box<[u8]>, FolderId, BuildHasherDefault<PathHasher>>,
    folders: Vec<Folder>,
}

#[derive(Debug)]
pub(super) struct Folder {
    pub(super) path: Box<[u8]>,
    /// When the folder was last checked, in ticks of [`Validity`](super::validity::Validity).
    pub(super) checked: u64,
    /// Whether the folder changes only when something is installed.
    pub(super) is_steady: bool,
    pub(super) state: State,
    pub(super) stamp: Stamp,
    pub(super) names: Names,
    /// When the names were read, in nanoseconds since 1970.
    pub(super) read_ns: i64,
    /// Whether this process has created, moved or removed something in the folder, so that the pack must not
    /// be used for it.
    pub(super) is_ours: bool,
    /// Whether every user may search the folder, by its mode.
    pub(super) is_open: bool,
    /// Whether this process may search the folder; `None` until queried.
    pub(super) may_search: Option<bool>,
}

/// The state of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Not a folder, or one that cannot be examined.
    Unknown,
    /// There is nothing at the path.
    Missing,
    /// A folder: the path itself, or the target of its links.
    Folder(FolderId),
}

#[derive(Debug)]
pub(super) enum Names {
    NotRead,
    Unreadable,
    Packed(Listing<'static>),
    Read(Vec<u8>),
}

impl FolderTable {
    /// Returns the number of the folder at a clean path, adding it if necessary.
    pub(super) fn id(&mut self, path: &[u8]) -> FolderId {
        if let Some(id) = self.ids.get(path) {
            return *id;
        }
        let id = FolderId(u32::try_from(self.folders.len()).unwrap_or(u32::MAX));
        self.ids.insert(path.into(), id);
        self.folders.push(Folder::new(path));
        id
    }

    /// Returns the number of the folder at a path, if it is in the table.
    pub(super) fn known(&self, path: &[u8]) -> Option<FolderId> {
        self.ids.get(path).copied()
    }

    /// Returns all numbers of the folder with the given path and inode. Links may lead to a folder, and it
    /// may be mounted in several places.
    pub(super) fn known_as(&self, path: &[u8], inode: Option<u64>) -> Vec<FolderId> {
        let is_it = |folder: &Folder| {
            let is_here = path::is_same(&folder.path, path);
            let State::Folder(real) = folder.state else { return is_here };
            Some(self[real].stamp.inode) == inode || is_here
        };
        let ids = (0..).map(FolderId).zip(&self.folders);
        ids.filter(|(_, folder)| is_it(folder)).map(|(id, _)| id).collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Folder> {
        self.folders.iter()
    }
}

impl Index<FolderId> for FolderTable {
    type Output = Folder;

    fn index(&self, id: FolderId) -> &Folder {
        &self.folders[id.0 as usize]
    }
}

impl IndexMut<FolderId> for FolderTable {
    fn index_mut(&mut self, id: FolderId) -> &mut Folder {
        &mut self.folders[id.0 as usize]
    }
}

impl Folder {
    fn new(path: &[u8]) -> Self {
        Self {
            path: path.into(),
            checked: 0,
            is_steady: is_steady(path),
            state: State::Unknown,
            stamp: Stamp::default(),
            names: Names::NotRead,
            read_ns: 0,
            is_ours: false,
            is_open: false,
            may_search: None,
        }
    }

    /// Discards the cached state.
    pub(super) fn invalidate(&mut self) {
        (self.checked, self.is_ours, self.names) = (0, true, Names::NotRead);
    }
}
