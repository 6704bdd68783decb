//! Compares the disks with the model, and the mount with both.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::model::DISKS;
use super::server::{MediaServer, modified};

/// The files and folders below a folder, by their paths.
#[derive(Debug, Default)]
struct Tree {
    files: BTreeMap<String, fs::Metadata>,
    folders: BTreeMap<String, fs::Metadata>,
}

impl Tree {
    fn of(base: &Path) -> Self {
        let mut tree = Self::default();
        tree.add(base, "");
        tree
    }

    fn add(&mut self, base: &Path, folder: &str) {
        for entry in fs::read_dir(base.join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            let stat = fs::symlink_metadata(base.join(&path))
                .unwrap_or_else(|error| panic!("{path} in {}: {error}", base.display()));
            let is_folder = stat.is_dir();
            let all = if is_folder { &mut self.folders } else { &mut self.files };
            assert!(all.insert(path.clone(), stat).is_none(), "{path} is listed twice");
            if is_folder {
                self.add(base, &path);
            }
        }
    }

    fn folder_names(&self) -> BTreeSet<String> {
        self.folders.keys().cloned().collect()
    }

    fn file_names(&self) -> BTreeSet<String> {
        self.files.keys().cloned().collect()
    }
}

impl MediaServer {
    /// Compares the names on each disk with the model, and nothing is below the mount point of one that is away.
    pub(super) fn check_disks(&self) {
        let _ = self.stored_trees();
        for disk in (0..DISKS).filter(|&disk| self.model.disks[disk].is_away) {
            let below = fs::read_dir(self.place(disk)).unwrap().count();
            assert_eq!(below, 0, "names below the mount point of disk {disk}");
        }
    }

    fn stored_trees(&self) -> Vec<Tree> {
        let checked = |disk: usize| {
            let (tree, known) = (Tree::of(&self.aside(disk)), &self.model.disks[disk]);
            let names: BTreeSet<_> = known.names.keys().cloned().collect();
            same(&format!("files of disk {disk}"), &tree.file_names(), &names);
            same(&format!("folders of disk {disk}"), &tree.folder_names(), &known.folders);
            tree
        };
        (0..DISKS).map(checked).collect()
    }

    /// Compares all names, attributes and times.
    pub(super) fn audit(&self) {
        self.check_disks();
        let stored = self.stored_trees();
        for (disk, tree) in stored.iter().enumerate() {
            for (name, stat) in &tree.files {
                self.check_stored(disk, name, stat);
            }
        }
        let view = Tree::of(&self.target(""));
        same("files of the mount", &view.file_names(), &self.model.names_below(""));
        same("folders of the mount", &view.folder_names(), &self.model.folders_below(""));
        for (name, shown) in &view.files {
            let (disk, id) = self.model.shown(name).unwrap();
            let stored = &stored[disk].files[name];
            let attributes = |stat: &fs::Metadata| (stat.mode(), stat.nlink(), stat.uid());
            assert_eq!(attributes(shown), attributes(stored), "{name} of disk {disk}");
            // The attributes of a file that a program writes may be those of half a second before.
            if self.model.files[&id].modified.is_some() {
                let times = |stat: &fs::Metadata| (stat.len(), modified(stat));
                assert_eq!(times(shown), times(stored), "{name} of disk {disk}");
            }
        }
        for (folder, shown) in &view.folders {
            let parts = self
                .model
                .present()
                .into_iter()
                .filter_map(|disk| stored[disk].folders.get(folder));
            let newest = parts.map(modified).max();
            assert_eq!(Some(modified(shown)), newest, "time of {folder}");
        }
    }

    /// Checks the attributes of a file on its disk.
    fn check_stored(&self, disk: usize, name: &str, stat: &fs::Metadata) {
        let id = self.model.disks[disk].names[name];
        let state = &self.model.files[&id];
        assert_eq!(stat.len(), state.length, "length of {name}");
        assert_eq!(stat.mode() & 0o7777, state.mode, "mode of {name}");
        if let Some(time) = state.modified {
            assert_eq!(modified(stat), time, "time of {name}");
        }
        let links = self.model.disks[disk].names.values().filter(|other| **other == id).count();
        assert_eq!(stat.nlink(), links as u64, "links of {name}");
    }

    /// Reads all that the mount shows.
    pub(super) fn check_contents(&self) {
        for name in self.model.names_below("") {
            let (_, id) = self.model.shown(&name).unwrap();
            let read =
                fs::read(self.target(&name)).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(self.model.files[&id].has_content(&read), "{name}, file {id}");
        }
    }
}

/// Compares names, and says which ones differ.
pub(super) fn same(what: &str, found: &BTreeSet<String>, expected: &BTreeSet<String>) {
    let (more, missing) = (found.difference(expected), expected.difference(found));
    let (more, missing): (Vec<_>, Vec<_>) = (more.collect(), missing.collect());
    assert!(
        more.is_empty() && missing.is_empty(),
        "{what}: {more:?} too many, {missing:?} missing"
    );
}
