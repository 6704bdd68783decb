//! Walks a path through links, component by component, as the kernel does.

use super::observer::{DiskQuery, Observer};
use super::pack_view::PackView;
use super::table::{FolderId, FolderTable, Names, State};
use super::validity::Validity;
use crate::disk::{self, NoStatus, Status};
use crate::listing::NameKind;
use crate::{kind, path, rights};

/// The most links that the kernel follows in one path (`MAXSYMLINKS`).
const LINKS_MAX: u32 = 40;

/// The parts of the cache that a walk uses, with the count of queries.
pub(super) struct Walk<'a> {
    pub(super) table: &'a mut FolderTable,
    pub(super) pack: &'a PackView,
    pub(super) validity: &'a Validity,
    pub(super) lookups: &'a mut u64,
    pub(super) observer: Option<Observer>,
}

impl Walk<'_> {
    /// Brings the cached state of the folder's path up to date. `links` is the number of links followed so
    /// far.
    pub(super) fn check(&mut self, id: FolderId, links: u32) {
        let folder = &self.table[id];
        if self.validity.covers(folder.checked, folder.is_steady) {
            return;
        }
        let state = match self.state_from_pack(id) {
            Some(state) => state,
            None => self.state_from_disk(id, links),
        };
        let folder = &mut self.table[id];
        folder.state = state;
        folder.checked = self.validity.now();
    }

    /// Returns the state of the path according to a frozen pack.
    fn state_from_pack(&mut self, id: FolderId) -> Option<State> {
        if !self.pack.began_frozen() {
            return None;
        }
        let folder = &mut self.table[id];
        if folder.is_ours || self.pack.changes.concern(&folder.path) {
            return None;
        }
        if let Some(entry) = self.pack.find(kind::FOLDER, &folder.path) {
            folder.stamp = entry.stamp();
            return Some(State::Folder(id));
        }
        let real_path = self.pack.find(kind::ALIAS, &folder.path)?.data()?;
        let real = self.table.id(real_path);
        self.check(real, 0);
        Some(self.table[real].state)
    }

    fn state_from_disk(&mut self, id: FolderId, links: u32) -> State {
        let path = self.table[id].path.clone();
        *self.lookups += 1;
        self.observer.iter().for_each(|observe| observe(&path, DiskQuery::Folder));
        let status = match disk::status(&path) {
            Ok(status) => status,
            Err(NoStatus::Missing) => return State::Missing,
            Err(NoStatus::Unknown) => return State::Unknown,
        };
        match disk::kind(&status) {
            NameKind::Folder => self.state_of_folder(id, &path, &status, links),
            NameKind::Link if links < LINKS_MAX => self.follow(&path, links + 1),
            _ => State::Unknown,
        }
    }

    /// Returns the state of a folder that is not a link itself, but may lie below one.
    fn state_of_folder(&mut self, id: FolderId, path: &[u8], status: &Status, links: u32) -> State {
        if let Some((parent, name)) = path::split(path).filter(|_| !disk::is_at_its_path(status)) {
            let parent = self.table.id(parent);
            self.check(parent, links);
            match self.table[parent].state {
                State::Folder(real) if real != parent => {
                    let real = path::join(&self.table[real].path, name);
                    return self.state_at(&real, links);
                }
                State::Folder(_) => {}
                other => return other,
            }
        }
        let stamp = disk::stamp(status);
        let folder = &mut self.table[id];
        folder.is_open = rights::is_open_folder(status);
        // Names that were read just after a change may lack the next change, which leaves the same stamp.
        let may_lack = matches!(folder.names, Names::Read(_)) && stamp.is_racy(folder.read_ns);
        if folder.stamp != stamp || may_lack {
            folder.stamp = stamp;
            folder.names = Names::NotRead;
        }
        State::Folder(id)
    }

    /// Returns the state of the target of the link at `path`.
    fn follow(&mut self, path: &[u8], links: u32) -> State {
        *self.lookups += 1;
        let Some(target) = disk::read_link(path) else { return State::Unknown };
        let Some((parent, _)) = path::split(path) else { return State::Unknown };
        let start = if target.starts_with(b"/") { b"/" } else { parent };
        let mut state = self.state_at(start, links);
        for component in target.split(|byte| *byte == b'/') {
            let State::Folder(real) = state else { return state };
            let here = self.table[real].path.clone();
            state = match component {
                b"" | b"." => state,
                b".." => {
                    self.state_at(path::split(&here).map_or(b"/", |(parent, _)| parent), links)
                }
                name => self.state_at(&path::join(&here, name), links),
            };
        }
        state
    }

    fn state_at(&mut self, path: &[u8], links: u32) -> State {
        let id = self.table.id(path);
        self.check(id, links);
        self.table[id].state
    }
}
