//! The folders of a pack, and whether the pack is trusted about them without a query.

use std::collections::HashMap;

use thruway_pack::{Entry, Pack};

use super::changes::Changes;
use crate::disk::{self, Status};
use crate::{kind, rights};

#[derive(Debug)]
pub(super) struct PackView {
    pack: Option<Pack<'static>>,
    is_frozen: bool,
    /// Changes by this process, about which a frozen pack is not trusted.
    pub(super) changes: Changes,
    /// The pack's files and folders by inode, built on first use.
    inodes: Option<HashMap<u64, Vec<&'static [u8]>>>,
}

impl PackView {
    pub(super) fn new(pack: Option<Pack<'static>>, is_frozen: bool) -> Self {
        Self { pack, is_frozen, changes: Changes::default(), inodes: None }
    }

    pub(super) fn find(&self, kind: u32, path: &[u8]) -> Option<Entry<'static>> {
        self.pack.and_then(|pack| pack.find(kind, path))
    }

    /// Whether the pack was to be trusted without queries when the boot started.
    pub(super) fn began_frozen(&self) -> bool {
        self.is_frozen
    }

    /// Whether the pack is trusted without queries, except for recorded changes.
    pub(super) fn is_frozen(&self) -> bool {
        self.is_frozen && !self.changes.are_all()
    }

    /// Records that this process has changed or moved the file at a clean path. If the pack knows the path as
    /// a folder or a link, any number of other paths are affected, so everything counts as changed.
    pub(super) fn edited(&mut self, path: &[u8]) {
        let is_known = |kind| self.find(kind, path).is_some();
        if is_known(kind::FOLDER) || is_known(kind::ALIAS) {
            self.changes.add_all();
        } else {
            self.changes.add(path);
        }
    }

    /// Returns the other paths by which the pack knows the file at a path without links. A folder or a file
    /// may be mounted in several places.
    pub(super) fn other_names(&mut self, path: &[u8]) -> Vec<&'static [u8]> {
        let Ok(here) = disk::status(path) else { return Vec::new() };
        let is_it = |there: Status| disk::is_same_file(&there, &here);
        let inode = disk::stamp(&here).inode;
        let names = self.inodes().get(&inode).into_iter().flatten().copied();
        names.filter(|name| *name != path && disk::status(name).is_ok_and(is_it)).collect()
    }

    fn inodes(&mut self) -> &HashMap<u64, Vec<&'static [u8]>> {
        let pack = self.pack;
        self.inodes.get_or_insert_with(|| {
            let mut inodes = HashMap::<_, Vec<_>>::new();
            for entry in pack.iter().flat_map(Pack::entries) {
                inodes.entry(entry.stamp().inode).or_default().push(entry.name());
            }
            inodes
        })
    }

    /// Records that this process has changed a file at an unknown path.
    pub(super) fn edited_somewhere(&mut self) {
        if self.is_frozen {
            self.changes.add_all();
        }
    }

    /// Whether this process may search a folder of the pack.
    pub(super) fn may_search(&self, path: &[u8]) -> bool {
        let is_open = |entry: Entry<'_>| entry.flags() & kind::OPEN != 0;
        self.find(kind::FOLDER, path).is_some_and(is_open) || rights::may_search(path)
    }
}
