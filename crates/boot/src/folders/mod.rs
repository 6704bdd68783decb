//! A cache of folders: which links a path leads through, and which names a folder has.
//!
//! A folder is queried once, by `lstat`, and again only after [`Folders::invalidate`], which the interposed
//! calls of libc call when this process may have learned of a change, or when the state in the cache is too
//! old. In portable mode no calls are interposed, so only a folder that is [`steady`] remains in the cache;
//! any other folder is queried again in each look-up. The names in a folder come from the pack if the folder
//! has the stamp that the pack has stored; otherwise they are read once.
//!
//! Reading order: [`table`] (the cached state), [`validity`] (how long it counts), [`pack_view`] and
//! [`changes`] (when a frozen pack is trusted), [`walk`] (where a path leads), then this file.

mod changes;
mod known;
mod observer;
mod pack_view;
mod steady;
mod table;
mod validity;
mod walk;

use thruway_pack::{Pack, Stamp, now_ns};

use crate::disk;
use crate::kind;
use crate::listing::{self, Listing, NameKind, Stem};
use crate::path;

pub(crate) use known::KnownFolder;
pub use observer::{DiskQuery, Observer};
pub use table::FolderId;

use pack_view::PackView;
use table::{FolderTable, Names, State};
use validity::Validity;
use walk::Walk;

/// The cache of all folders that have been queried.
#[derive(Debug)]
pub struct Folders {
    table: FolderTable,
    pack: PackView,
    validity: Validity,
    /// The number of queries to the disk, for reports.
    pub(crate) lookups: u64,
    /// Called before each query to the disk.
    pub(crate) observer: Option<Observer>,
}

/// The result of probing a name below a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// There is no file with that name.
    Absent,
    /// There is a regular file.
    File,
    /// There is a link or another type of file; the caller must query the disk.
    Present,
    /// The cache cannot tell.
    Unknown,
}

impl Folders {
    /// Creates a cache that knows only the content of `pack`. `is_interposed` tells whether interposed calls
    /// call [`invalidate`](Self::invalidate) when this process may have learned of a change.
    #[must_use]
    pub fn new(pack: Option<Pack<'static>>, is_frozen: bool, is_interposed: bool) -> Self {
        Self {
            table: FolderTable::default(),
            pack: PackView::new(pack, is_frozen),
            validity: Validity::new(is_interposed),
            lookups: 0,
            observer: None,
        }
    }

    /// Invalidates the state of every folder, which is then queried again before its next use: a file may
    /// have been created, moved or removed.
    pub fn invalidate(&mut self) {
        self.validity.invalidate();
    }

    /// Starts a look-up, or continues the previous one. Invalidates the cache after a new epoch or a pause.
    pub(crate) fn begin_lookup(&mut self, epoch: u64, continues: bool) {
        self.validity.refresh(epoch);
        if !continues {
            self.validity.begin_lookup();
        }
    }

    /// Records a change by this process at an unknown path.
    pub(crate) fn changed_somewhere(&mut self) {
        self.invalidate();
        self.pack.edited_somewhere();
    }

    /// Runs `look` with every folder that it uses checked again, and no other.
    pub fn revalidated<T>(&mut self, look: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.validity.state();
        self.invalidate();
        let seen = look(self);
        self.validity.restore(before);
        seen
    }

    /// Records that the file at a clean path may have been created, moved or removed. This affects the cached
    /// state of the path, of the paths below it, and of its folder, also under other paths of that folder.
    pub fn changed(&mut self, path: &[u8]) {
        let Some((parent, name)) = path::split(path) else { return self.changed_somewhere() };
        if self.pack.began_frozen() {
            self.edited(path);
            // Otherwise the pack would be trusted at the first query about the folder.
            let parent = self.id(parent);
            self.check(parent);
        }
        let inode = disk::status_of_target(parent).map(|status| disk::stamp(&status).inode);
        for folder in self.table.known_as(parent, inode) {
            let path = path::join(&self.table[folder].path, name);
            if self.table.iter().any(|known| path::is_at_or_below(&known.path, &path)) {
                self.invalidate();
            }
            self.table[folder].invalidate();
        }
        if self.table.iter().any(|known| path::is_at_or_below(&known.path, path)) {
            self.invalidate();
        }
    }

    /// Records that this process has changed or moved the file at a clean path.
    pub(crate) fn edited(&mut self, path: &[u8]) {
        self.pack.edited(path);
    }

    /// Like [`edited`](Self::edited), for every path by which the pack knows the file. `path` must be free of
    /// links.
    pub(crate) fn edited_by_all_names(&mut self, path: &[u8]) {
        self.pack.edited(path);
        for name in self.pack.other_names(path) {
            self.pack.edited(name);
        }
        let Some((folder, last)) = path::split(path) else { return };
        for name in self.pack.other_names(folder) {
            self.pack.edited(&path::join(name, last));
        }
    }

    /// Whether the pack is trusted about a clean path without a query: the pack is frozen, and this process
    /// has changed nothing there and may search the folder.
    pub(crate) fn is_frozen_at(&mut self, path: &[u8]) -> bool {
        if !self.is_frozen() {
            return false;
        }
        let Some((folder, name)) = path::split(path) else { return false };
        let id = self.id(folder);
        if !self.pack.changes.is_empty() {
            let real = self.real_path(id).map(|real| path::join(real, name));
            let is_changed = self.pack.changes.concern(path);
            if is_changed || real.is_none_or(|real| self.pack.changes.concern(&real)) {
                return false;
            }
        }
        self.may_search(id)
    }

    /// Whether the pack is trusted without queries, except for recorded changes.
    pub(crate) fn is_frozen(&self) -> bool {
        self.pack.is_frozen()
    }

    /// Whether this process may search a folder of a frozen pack; queried once.
    fn may_search(&mut self, id: FolderId) -> bool {
        let folder = &mut self.table[id];
        *folder.may_search.get_or_insert_with(|| self.pack.may_search(&folder.path))
    }

    /// Returns the folder at a clean path.
    pub fn id(&mut self, path: &[u8]) -> FolderId {
        self.table.id(path)
    }

    /// Returns the path by which the folder is known.
    pub(crate) fn path(&self, id: FolderId) -> &[u8] {
        &self.table[id].path
    }

    /// Returns the folder's path without links; `None` if the path does not lead to a folder.
    pub fn real_path(&mut self, id: FolderId) -> Option<&[u8]> {
        let real = self.real(id)?;
        Some(&self.table[real].path)
    }

    /// Whether there is nothing at the folder's path.
    pub fn is_missing(&mut self, id: FolderId) -> bool {
        self.check(id);
        self.table[id].state == State::Missing
    }

    /// Returns the names in the folder, if the folder can be read.
    pub fn names(&mut self, id: FolderId) -> Option<Listing<'_>> {
        let real = self.real(id)?;
        if matches!(self.table[real].names, Names::NotRead) {
            self.read_names(real);
        }
        match &self.table[real].names {
            Names::Packed(listing) => Some(*listing),
            Names::Read(bytes) => Some(Listing::new(bytes)),
            Names::NotRead | Names::Unreadable => None,
        }
    }

    /// Whether the folder may hold a name with that stem; `true` if the cache cannot tell.
    pub fn may_hold(&mut self, id: FolderId, stem: Stem) -> bool {
        if self.is_missing(id) {
            return false;
        }
        self.names(id).is_none_or(|names| names.may_hold(stem))
    }

    /// Probes `name`, of one or more components, below the folder.
    pub fn probe(&mut self, id: FolderId, name: &[u8]) -> Probe {
        if self.is_missing(id) {
            return Probe::Absent;
        }
        let (first, rest) = match name.iter().position(|byte| *byte == b'/') {
            Some(slash) => (&name[..slash], Some(&name[slash + 1..])),
            None => (name, None),
        };
        let Some(names) = self.names(id) else { return Probe::Unknown };
        match (names.find(first), rest) {
            // Case folding of other letters is the file system's own.
            (None, _) if cfg!(windows) && !first.is_ascii() => Probe::Unknown,
            (None, _) | (Some(NameKind::File), Some(_)) => Probe::Absent,
            (Some(NameKind::File), None) => Probe::File,
            (Some(_), None) => Probe::Present,
            (Some(_), Some(rest)) => {
                let below = path::join(&self.table[id].path, first);
                let below = self.id(&below);
                self.probe(below, rest)
            }
        }
    }

    /// Probes a clean path, as far as folders whose names were read before decide it. A folder that was
    /// queried only on the way, such as `/home`, decides nothing, because its names change often.
    pub fn probe_path(&mut self, path: &[u8]) -> Probe {
        let mut folder = path;
        while let Some((parent, _)) = path::split(folder) {
            folder = parent;
            if let Some(id) = self.table.known(folder) {
                if matches!(self.table[id].names, Names::NotRead) && !self.is_missing(id) {
                    return Probe::Unknown;
                }
                let name = &path[folder.len()..];
                return self.probe(id, name.strip_prefix(b"/").unwrap_or(name));
            }
        }
        Probe::Unknown
    }

    /// Returns every folder that was found, for a pack.
    pub(crate) fn known(&self) -> impl Iterator<Item = KnownFolder<'_>> {
        known::known(&self.table, &self.pack)
    }

    /// Returns the folder that the path leads to.
    fn real(&mut self, id: FolderId) -> Option<FolderId> {
        self.check(id);
        match self.table[id].state {
            State::Folder(real) => Some(real),
            State::Missing | State::Unknown => None,
        }
    }

    /// Checks the folder, unless its last check is still valid.
    fn check(&mut self, id: FolderId) {
        let Self { table, pack, validity, lookups, observer } = self;
        Walk { table, pack, validity, lookups, observer: *observer }.check(id, 0);
    }

    /// Takes the names from the pack if the stamp matches, otherwise from the disk.
    fn read_names(&mut self, id: FolderId) {
        let folder = &self.table[id];
        self.observer.iter().for_each(|observe| observe(&folder.path, DiskQuery::Names));
        let names = match self.names_from_pack(id) {
            Some(listing) => Names::Packed(listing),
            None => self.names_from_disk(id).map_or(Names::Unreadable, Names::Read),
        };
        self.table[id].names = names;
    }

    fn names_from_pack(&self, id: FolderId) -> Option<Listing<'static>> {
        let folder = &self.table[id];
        let entry = self.pack.find(kind::FOLDER, &folder.path)?;
        let is_current = entry.flags() & kind::LISTED != 0 && entry.stamp() == folder.stamp;
        if is_current { entry.data().map(Listing::new) } else { None }
    }

    fn names_from_disk(&mut self, id: FolderId) -> Option<Vec<u8>> {
        let folder = &mut self.table[id];
        // Five calls: open, fstat, two getdents, close.
        self.lookups += 5;
        folder.read_ns = now_ns();
        let (stamp, names): (Stamp, _) = disk::read_folder(&folder.path)?;
        folder.stamp = stamp;
        listing::encode(names)
    }
}
