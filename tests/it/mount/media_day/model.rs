//! The files that each disk must have, and the view of them.

use std::collections::{BTreeMap, BTreeSet};

pub(super) const DISKS: usize = 3;
pub(super) const PIECE_BYTES: usize = 64 << 10;

/// A file, whatever its names.
pub(super) type FileId = u64;

/// Seconds and nanoseconds.
pub(super) type Time = (i64, i64);

#[derive(Debug, Clone, Default)]
pub(super) struct FileState {
    /// The number that determines the bytes of each piece.
    pub(super) number: u64,
    pub(super) length: u64,
    /// The pieces that were written. The bytes of others are zero.
    pub(super) written: BTreeSet<u64>,
    /// The pieces of which a full disk may have taken a part.
    pub(super) torn: BTreeSet<u64>,
    /// The time of modification; unknown while a program writes.
    pub(super) modified: Option<Time>,
    pub(super) mode: u32,
}

impl FileState {
    pub(super) fn piece(number: u64, at: u64) -> Vec<u8> {
        let start = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ at;
        start.to_le_bytes().repeat(PIECE_BYTES / 8)
    }

    /// Compares the bytes of a piece with those that it must have.
    pub(super) fn has_piece(&self, at: u64, bytes: &[u8]) -> bool {
        if self.torn.contains(&at) {
            return true;
        }
        match self.written.contains(&at) {
            true => bytes == &Self::piece(self.number, at)[..bytes.len()],
            false => bytes.iter().all(|&byte| byte == 0),
        }
    }

    /// Compares the whole content.
    pub(super) fn has_content(&self, bytes: &[u8]) -> bool {
        let mut pieces = bytes.chunks(PIECE_BYTES).enumerate();
        bytes.len() as u64 == self.length
            && pieces.all(|(at, piece)| self.has_piece(at as u64, piece))
    }
}

#[derive(Debug, Default)]
pub(super) struct Disk {
    pub(super) is_away: bool,
    pub(super) folders: BTreeSet<String>,
    pub(super) names: BTreeMap<String, FileId>,
}

impl Disk {
    pub(super) fn has_folder(&self, path: &str) -> bool {
        path.is_empty() || self.folders.contains(path)
    }

    /// Adds a folder with those above it.
    pub(super) fn add_folders(&mut self, path: &str) {
        let mut path = path;
        while !path.is_empty() {
            self.folders.insert(path.to_owned());
            path = parent(path);
        }
    }

    fn remove_below(&mut self, path: &str) {
        self.names.retain(|name, _| !is_below(name, path));
        self.folders.retain(|folder| !is_below(folder, path));
    }

    fn rename_below(&mut self, from: &str, to: &str) {
        let renamed = |path: &str| match is_below(path, from) {
            true => format!("{to}{}", &path[from.len()..]),
            false => path.to_owned(),
        };
        self.folders = self.folders.iter().map(|folder| renamed(folder)).collect();
        self.names = self.names.iter().map(|(name, id)| (renamed(name), *id)).collect();
    }
}

/// The folder of a path; empty for one in the root.
pub(super) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The disks in the order of precedence.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) disks: [Disk; DISKS],
    pub(super) files: BTreeMap<FileId, FileState>,
}

impl Model {
    /// The disks that are not away.
    pub(super) fn present(&self) -> Vec<usize> {
        (0..DISKS).filter(|&disk| !self.disks[disk].is_away).collect()
    }

    /// The disk that provides the file of this name, and the file.
    pub(super) fn shown(&self, name: &str) -> Option<(usize, FileId)> {
        self.present().into_iter().find_map(|disk| Some((disk, *self.disks[disk].names.get(name)?)))
    }

    pub(super) fn shows_folder(&self, path: &str) -> bool {
        self.present().iter().any(|&disk| self.disks[disk].has_folder(path))
    }

    /// All names of the view below a folder.
    pub(super) fn names_below(&self, folder: &str) -> BTreeSet<String> {
        let all = self.present().into_iter().flat_map(|disk| self.disks[disk].names.keys());
        all.filter(|name| is_below(name, folder) || folder.is_empty()).cloned().collect()
    }

    /// All folders of the view below a folder, without the folder itself.
    pub(super) fn folders_below(&self, folder: &str) -> BTreeSet<String> {
        let all = self.present().into_iter().flat_map(|disk| self.disks[disk].folders.iter());
        let is_in = |path: &String| is_below(path, folder) && *path != folder || folder.is_empty();
        all.filter(|path| is_in(path)).cloned().collect()
    }

    /// The disk that has a file, and the names of the file there.
    pub(super) fn places(&self, id: FileId) -> Option<(usize, Vec<String>)> {
        (0..DISKS).find_map(|disk| {
            let all = self.disks[disk].names.iter().filter(|(_, of)| **of == id);
            let names: Vec<_> = all.map(|(name, _)| name.clone()).collect();
            (!names.is_empty()).then_some((disk, names))
        })
    }

    /// Removes a name of the view from each disk that has it.
    pub(super) fn remove_file(&mut self, name: &str) {
        for disk in self.disks.iter_mut().filter(|disk| !disk.is_away) {
            disk.names.remove(name);
        }
    }

    pub(super) fn remove_tree(&mut self, folder: &str) {
        self.disks.iter_mut().filter(|disk| !disk.is_away).for_each(|it| it.remove_below(folder));
    }

    pub(super) fn rename_tree(&mut self, from: &str, to: &str) {
        let has_it = |disk: &&mut Disk| !disk.is_away && disk.has_folder(from);
        for disk in self.disks.iter_mut().filter(has_it) {
            disk.rename_below(from, to);
            disk.add_folders(parent(to));
        }
    }

    /// Renames a file within its disks. The new name disappears from the others.
    pub(super) fn rename_file(&mut self, from: &str, to: &str) {
        for disk in self.disks.iter_mut().filter(|disk| !disk.is_away) {
            disk.names.remove(to);
            if let Some(id) = disk.names.remove(from) {
                disk.names.insert(to.to_owned(), id);
                disk.add_folders(parent(to));
            }
        }
    }

    /// Moves all names of a file to another disk.
    pub(super) fn move_file(&mut self, id: FileId, to: usize) {
        let Some((from, names)) = self.places(id) else { return };
        for name in names {
            self.disks[from].names.remove(&name);
            self.disks[to].add_folders(parent(&name));
            self.disks[to].names.insert(name, id);
        }
    }
}
