//! What is known of folders: whether a path leads through links, and which names are there.
//!
//! A folder is asked about once (one `lstat`), and then again only after [`Folders::invalidate`]. That
//! happens when this process may have been told of a change, and some seconds later in any case. In the portable
//! mode nothing says when that is. So a folder that is not [`steady`] is asked about in each look-up. Its names
//! come from the pack where its stamp is still the one in the pack; else they are read, once.
//!
//! Reading order: [`table`] (what is kept), [`validity`] (for how long), [`pack_view`] and [`changes`] (when a
//! frozen pack is believed), [`walk`] (where a path leads), then this file.

mod changes;
mod known;
mod observer;
mod pack_view;
mod read;
mod steady;
mod table;
mod validity;
mod walk;

use rustix::fs::{self, AtFlags, CWD};
use thruway_pack::{Pack, Stamp, now_ns};

use crate::kind;
use crate::listing::{self, Listing, NameKind, Stem};
use crate::path;

pub(crate) use known::KnownFolder;
pub use observer::{Asked, Observer};
pub(crate) use read::read_folder;
pub use table::FolderId;

use pack_view::PackView;
use table::{FolderTable, Names, State};
use validity::Validity;
use walk::Walk;

/// All folders that have been asked about.
#[derive(Debug)]
pub struct Folders {
    table: FolderTable,
    pack: PackView,
    validity: Validity,
    /// How often the disk was asked, for reports.
    pub(crate) lookups: u64,
    /// Is told what the disk is asked.
    pub(crate) observer: Option<Observer>,
}

/// What a name below a folder turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// There is nothing of that name.
    Absent,
    /// There is a regular file.
    File,
    /// There is something else, or a link: the disk has to be asked.
    Present,
    /// Not known.
    Unknown,
}

impl Folders {
    /// Nothing is known but what `pack` holds. `is_told` is whether [`invalidate`](Self::invalidate) is called when
    /// this process may have been told of a change.
    #[must_use]
    pub fn new(pack: Option<Pack<'static>>, is_frozen: bool, is_told: bool) -> Self {
        Self {
            table: FolderTable::default(),
            pack: PackView::new(pack, is_frozen),
            validity: Validity::new(is_told),
            lookups: 0,
            observer: None,
        }
    }

    /// Something may have been made, moved or removed: everything is checked before it is used again.
    pub fn invalidate(&mut self) {
        self.validity.invalidate();
    }

    /// Invalidates what may not be so any more: this process has been told something since, or has paused.
    /// A look-up begins, or the last one goes on.
    pub(crate) fn ask(&mut self, epoch: u64, goes_on: bool) {
        self.validity.ask(epoch);
        if !goes_on {
            self.validity.begin_lookup();
        }
    }

    /// This process has made, moved or removed something, and it is not known what.
    pub(crate) fn changed_somewhere(&mut self) {
        self.invalidate();
        self.pack.edited_somewhere();
    }

    /// Checks every folder that `look` needs again, and no other.
    pub fn revalidated<T>(&mut self, look: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.validity.state();
        self.invalidate();
        let seen = look(self);
        self.validity.restore(before);
        seen
    }

    /// The thing at a clean path may have been made, moved or removed. Only what is known of it, of
    /// what is below it, or of the folder that it is in, is affected. It may be known by other paths.
    pub fn changed(&mut self, path: &[u8]) {
        let Some((parent, name)) = path::split(path) else { return self.changed_somewhere() };
        if self.pack.began_frozen() {
            self.edited(path);
            // The pack would be believed when the folder is asked about for the first time.
            let parent = self.id(parent);
            self.check(parent);
        }
        let inode = fs::statat(CWD, parent, AtFlags::empty()).ok().map(|stat| stat.st_ino);
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

    /// This process has changed what is at a clean path, or moved it.
    pub(crate) fn edited(&mut self, path: &[u8]) {
        self.pack.edited(path);
    }

    /// As [`edited`](Self::edited), by every path by which the pack knows what is at a path without links.
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

    /// Whether the pack is believed about what is at a clean path, without asking. It is if the pack is
    /// frozen, and this process has changed nothing there and may look there.
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

    /// Whether the pack is believed without asking the disk, as far as nothing was changed.
    pub(crate) fn is_frozen(&self) -> bool {
        self.pack.is_frozen()
    }

    /// Whether this process may search a folder that a frozen pack knows; asked once.
    fn may_search(&mut self, id: FolderId) -> bool {
        let folder = &mut self.table[id];
        *folder.may_search.get_or_insert_with(|| self.pack.may_search(&folder.path))
    }

    /// The folder at a clean path.
    pub fn id(&mut self, path: &[u8]) -> FolderId {
        self.table.id(path)
    }

    /// The path by which the folder is known.
    pub(crate) fn path(&self, id: FolderId) -> &[u8] {
        &self.table[id].path
    }

    /// The folder's path without links; `None` if it is not a folder.
    pub fn real_path(&mut self, id: FolderId) -> Option<&[u8]> {
        let real = self.real(id)?;
        Some(&self.table[real].path)
    }

    /// Whether there is nothing at the folder's path.
    pub fn is_missing(&mut self, id: FolderId) -> bool {
        self.check(id);
        self.table[id].state == State::Missing
    }

    /// The folder's names, if they can be had.
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

    /// Whether a name with that stem may be in the folder; `true` if it is not known.
    pub fn may_hold(&mut self, id: FolderId, stem: Stem) -> bool {
        if self.is_missing(id) {
            return false;
        }
        self.names(id).is_none_or(|names| names.may_hold(stem))
    }

    /// What `name`, of one component or several, is below the folder.
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

    /// What is at a clean path, as far as it follows from folders whose names were wanted before. A
    /// folder that is known for what is below it, as `/home` is, says nothing: its names change.
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

    /// Every folder that was found, for a pack.
    pub(crate) fn known(&self) -> impl Iterator<Item = KnownFolder<'_>> {
        known::known(&self.table, &self.pack)
    }

    /// The folder that the path leads to.
    fn real(&mut self, id: FolderId) -> Option<FolderId> {
        self.check(id);
        match self.table[id].state {
            State::Folder(real) => Some(real),
            State::Missing | State::Unknown => None,
        }
    }

    /// Makes sure that nothing has happened since the folder was looked at.
    fn check(&mut self, id: FolderId) {
        let Self { table, pack, validity, lookups, observer } = self;
        Walk { table, pack, validity, lookups, observer: *observer }.check(id, 0);
    }

    /// Takes the names from the pack if its stamp is the folder's, else from the disk.
    fn read_names(&mut self, id: FolderId) {
        let folder = &self.table[id];
        self.observer.iter().for_each(|observe| observe(&folder.path, Asked::Names));
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
        let (stamp, names): (Stamp, _) = read_folder(&folder.path)?;
        folder.stamp = stamp;
        listing::encode(names)
    }
}
