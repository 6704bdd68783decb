//! What a pack says of folders, and whether it is believed without asking the disk.

use std::collections::HashMap;

use rustix::fs::{self, AtFlags, CWD, Stat};
use thruway_pack::{Entry, Pack};

use super::changes::Changes;
use crate::{kind, rights};

#[derive(Debug)]
pub(super) struct PackView {
    pack: Option<Pack<'static>>,
    is_frozen: bool,
    /// What a frozen pack is not believed about.
    pub(super) changes: Changes,
    /// The pack's files and folders by inode, once that was wanted.
    inodes: Option<HashMap<u64, Vec<&'static [u8]>>>,
}

impl PackView {
    pub(super) fn new(pack: Option<Pack<'static>>, is_frozen: bool) -> Self {
        Self { pack, is_frozen, changes: Changes::default(), inodes: None }
    }

    pub(super) fn find(&self, kind: u32, path: &[u8]) -> Option<Entry<'static>> {
        self.pack.and_then(|pack| pack.find(kind, path))
    }

    /// Whether the pack was to be believed when the boot began.
    pub(super) fn began_frozen(&self) -> bool {
        self.is_frozen
    }

    /// Whether the pack is believed without asking the disk, as far as nothing was changed.
    pub(super) fn is_frozen(&self) -> bool {
        self.is_frozen && !self.changes.are_all()
    }

    /// This process has changed what is at a clean path, or moved it. A folder or a link that the pack
    /// knows may stand for any number of paths.
    pub(super) fn edited(&mut self, path: &[u8]) {
        let is_known = |kind| self.find(kind, path).is_some();
        if is_known(kind::FOLDER) || is_known(kind::ALIAS) {
            self.changes.add_all();
        } else {
            self.changes.add(path);
        }
    }

    /// The other paths by which the pack knows what is at a path without links. A folder or a file may be
    /// mounted in several places.
    pub(super) fn other_names(&mut self, path: &[u8]) -> Vec<&'static [u8]> {
        let stat = |path: &[u8]| fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).ok();
        let Some(here) = stat(path) else { return Vec::new() };
        let is_it = |there: Stat| (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino);
        let names = self.inodes().get(&here.st_ino).into_iter().flatten().copied();
        names.filter(|name| *name != path && stat(name).is_some_and(is_it)).collect()
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

    /// This process has changed something, and it is not known what.
    pub(super) fn edited_somewhere(&mut self) {
        if self.is_frozen {
            self.changes.add_all();
        }
    }

    /// Whether this process may search a folder that the pack knows.
    pub(super) fn may_search(&self, path: &[u8]) -> bool {
        let is_open = |entry: Entry<'_>| entry.flags() & kind::OPEN != 0;
        self.find(kind::FOLDER, path).is_some_and(is_open) || rights::may_search(path)
    }
}
