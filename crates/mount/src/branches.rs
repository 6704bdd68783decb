//! Combines several sources into a view.
//!
//! A folder of the view is **merged** from its **parts**: the folders with the same path in each branch. A name refers
//! to the file in the first part that has the name.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

use rustix::io::Errno;
use thruway_sys::handle::FileHandle;

use crate::descriptors::Descriptors;
use crate::id_map::IdMap;
use crate::index::Index;
use crate::inodes::{InodeId, lock};
use crate::roots::Roots;

/// The sources, and the merged folders that the kernel knows.
#[derive(Debug)]
pub(crate) struct Branches {
    roots: Arc<Roots>,
    folders: RwLock<IdMap<Arc<MergedFolder>>>,
    /// Open parts, by folder and branch.
    part_fds: Descriptors,
    /// The indexes of dropped folders that the kernel knows: the order of names stays while a program lists them.
    /// Locked after `folders`.
    retired: Mutex<IdMap<SharedIndex>>,
    /// The last read errors of branches.
    failures: Mutex<IdMap<Errno>>,
}

/// The folder that a branch contributes to a merged folder.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub(crate) branch: u16,
    pub(crate) volume: u16,
    pub(crate) opener: Opener,
}

/// The way to open a part.
#[derive(Debug, Clone)]
pub(crate) enum Opener {
    Handle(FileHandle),
    /// A descriptor that stays open.
    Held(Arc<OwnedFd>),
}

/// A folder of the view.
#[derive(Debug)]
pub(crate) struct MergedFolder {
    pub(crate) id: InodeId,
    /// In the order of the branches; never empty.
    pub(crate) parts: Vec<Part>,
    /// Whether changes behind the mount are reported for all parts.
    pub(crate) is_watched: bool,
    /// Whether parts may have whiteouts, so that even a single one is read through the index.
    pub(crate) is_layered: bool,
    /// The names of all parts, built when a request first needs them.
    index: SharedIndex,
    /// The index of the dropped folder that this one replaces, until the own index is built.
    before: Mutex<Option<SharedIndex>>,
    /// Names whose entry in the index may be stale.
    stale_names: Mutex<HashSet<CString>>,
}

/// An index that outlives its folder.
type SharedIndex = Arc<RwLock<BuiltIndex>>;

#[derive(Debug, Default)]
pub(crate) struct BuiltIndex {
    pub(crate) index: Index,
    pub(crate) at: Option<Instant>,
}

impl Branches {
    pub(crate) fn new(roots: Arc<Roots>, descriptors_max: usize) -> Self {
        Self {
            roots,
            folders: RwLock::default(),
            part_fds: Descriptors::new(descriptors_max),
            retired: Mutex::default(),
            failures: Mutex::default(),
        }
    }

    pub(crate) fn roots(&self) -> &Roots {
        &self.roots
    }

    pub(crate) fn get(&self, id: InodeId) -> Option<Arc<MergedFolder>> {
        self.read().get(&id.0).cloned()
    }

    /// Marks a name of a merged folder as stale in the index.
    pub(crate) fn mark_stale(&self, id: InodeId, name: &CStr) {
        if let Some(merged) = self.get(id).filter(|merged| merged.is_merged()) {
            merged.stale_names().insert(name.to_owned());
        }
    }

    /// Adds the folder, unless another thread has added it meanwhile. Returns the folder that is kept.
    pub(crate) fn keep(&self, merged: MergedFolder) -> Arc<MergedFolder> {
        let mut folders = self.write();
        let kept = folders.entry(merged.id.0).or_insert_with(|| {
            if merged.is_merged() {
                *lock(&merged.before) = lock(&self.retired).remove(&merged.id.0);
            }
            Arc::new(merged)
        });
        Arc::clone(kept)
    }

    /// Drops the folder. The next use looks its parts up again.
    pub(crate) fn drop_folder(&self, id: InodeId) -> Option<Arc<MergedFolder>> {
        let mut folders = self.write();
        let dropped = folders.remove(&id.0)?;
        self.retire(&dropped);
        drop(folders);
        for part in &dropped.parts {
            self.part_fds.remove((id, part.branch));
        }
        Some(dropped)
    }

    /// Drops all folders as [`drop_folder`](Self::drop_folder) does, and returns their ids.
    pub(crate) fn drop_folders(&self) -> Vec<InodeId> {
        let mut folders = self.write();
        let dropped = std::mem::take(&mut *folders);
        dropped.values().for_each(|folder| self.retire(folder));
        drop(folders);
        for folder in dropped.values() {
            folder.parts.iter().for_each(|part| self.part_fds.remove((folder.id, part.branch)));
        }
        dropped.values().map(|folder| folder.id).collect()
    }

    /// Keeps the index of a dropped folder. The names are read again, and those that stay keep their places, so that a
    /// listing goes on where it was.
    fn retire(&self, dropped: &MergedFolder) {
        if dropped.is_merged() {
            let last = lock(&dropped.before).clone().unwrap_or_else(|| Arc::clone(&dropped.index));
            lock(&self.retired).insert(dropped.id.0, last);
        }
    }

    /// Drops a folder that the kernel has forgotten.
    pub(crate) fn forget(&self, id: InodeId) {
        self.drop_folder(id);
        lock(&self.retired).remove(&id.0);
    }

    /// Returns the open part, which `open` opens if necessary.
    pub(crate) fn part_fd(
        &self,
        id: InodeId,
        part: &Part,
        open: impl FnOnce(&FileHandle) -> Result<OwnedFd, Errno>,
    ) -> Result<Arc<OwnedFd>, Errno> {
        let handle = match &part.opener {
            Opener::Held(fd) => return Ok(Arc::clone(fd)),
            Opener::Handle(handle) => handle,
        };
        let key = (id, part.branch);
        if let Some(fd) = self.part_fds.get(key) {
            return Ok(fd);
        }
        let fd = Arc::new(open(handle)?);
        self.part_fds.put(key, Arc::clone(&fd));
        Ok(fd)
    }

    /// Closes parts that were not used for a while.
    pub(crate) fn age(&self) {
        self.part_fds.age();
    }

    pub(crate) fn note_failure(&self, branch: u16, errno: Errno) {
        lock(&self.failures).insert(u64::from(branch), errno);
    }

    pub(crate) fn note_success(&self, branch: u16) {
        lock(&self.failures).remove(&u64::from(branch));
    }

    /// Returns the branches whose last read failed, with the error.
    pub(crate) fn failures(&self) -> Vec<(usize, Errno)> {
        let failures = lock(&self.failures);
        let mut all: Vec<_> =
            failures.iter().map(|(&branch, &errno)| (branch as usize, errno)).collect();
        all.sort_unstable_by_key(|failure| failure.0);
        all
    }

    /// Whether no merged folder is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.read().is_empty()
    }

    /// Returns the number of merged folders, and the number of names in their indexes.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let folders = self.read();
        let names = folders.values().map(|merged| merged.read_index().index.len()).sum();
        (folders.len(), names)
    }

    fn read(&self) -> RwLockReadGuard<'_, IdMap<Arc<MergedFolder>>> {
        self.folders.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, IdMap<Arc<MergedFolder>>> {
        self.folders.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MergedFolder {
    pub(crate) fn new(id: InodeId, parts: Vec<Part>, is_watched: bool, is_layered: bool) -> Self {
        Self {
            id,
            parts,
            is_watched,
            is_layered,
            index: SharedIndex::default(),
            before: Mutex::default(),
            stale_names: Mutex::default(),
        }
    }

    /// Begins to build the index. A folder that replaces a dropped one begins with a copy of its index, which other
    /// threads may still use.
    pub(crate) fn begin_build(&self, built: &mut BuiltIndex) {
        let before = lock(&self.before).take();
        if let Some(before) = before {
            built.index = before.read().unwrap_or_else(PoisonError::into_inner).index.clone();
        }
        built.index.begin();
    }

    /// Returns the part in this branch.
    pub(crate) fn part(&self, branch: u16) -> Option<&Part> {
        self.parts.iter().find(|part| part.branch == branch)
    }

    /// Whether names are looked up in the index: the folder has several parts, or a part with whiteouts.
    pub(crate) fn is_merged(&self) -> bool {
        self.is_layered || self.parts.len() > 1
    }

    /// Returns the names to look up again before the index is used.
    pub(crate) fn stale_names(&self) -> MutexGuard<'_, HashSet<CString>> {
        lock(&self.stale_names)
    }

    pub(crate) fn read_index(&self) -> RwLockReadGuard<'_, BuiltIndex> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write_index(&self) -> RwLockWriteGuard<'_, BuiltIndex> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source_table::SourceTable;

    fn folder() -> MergedFolder {
        let held: Arc<OwnedFd> = Arc::new(std::fs::File::open("/").unwrap().into());
        let part = |branch| Part { branch, volume: 0, opener: Opener::Held(Arc::clone(&held)) };
        MergedFolder::new(InodeId(7), vec![part(0), part(1)], true, false)
    }

    fn build(folder: &MergedFolder, names: &[&str]) {
        let mut built = folder.write_index();
        folder.begin_build(&mut built);
        names.iter().for_each(|name| _ = built.index.insert(name.as_bytes(), 0, 8, 0));
        built.index.end();
    }

    #[test]
    fn names_keep_their_places_when_their_folder_is_dropped() {
        let roots = Roots::new(Vec::new(), SourceTable::default());
        let branches = Branches::new(Arc::new(roots), 1);
        build(&branches.keep(folder()), &["a", "b", "c"]);
        branches.drop_folders();
        // A folder that was not used in the meantime passes the places on.
        let unused = branches.keep(folder());
        branches.drop_folder(unused.id);
        let kept = branches.keep(folder());
        build(&kept, &["new", "c", "a"]);
        let built = kept.read_index();
        let names: Vec<_> = built.index.after(0).map(|(place, name, _)| (place, name)).collect();
        assert_eq!(names, [(1, &b"a"[..]), (3, b"c"), (4, b"new")]);
    }

    #[test]
    fn nothing_is_kept_of_a_folder_that_the_kernel_has_forgotten() {
        let roots = Roots::new(Vec::new(), SourceTable::default());
        let branches = Branches::new(Arc::new(roots), 1);
        build(&branches.keep(folder()), &["a", "b"]);
        branches.forget(InodeId(7));
        assert!(lock(&branches.retired).is_empty());
        let kept = branches.keep(folder());
        build(&kept, &["b"]);
        assert_eq!(kept.read_index().index.after(0).next().map(|(place, ..)| place), Some(1));
    }
}
