//! Combines several sources into a view.
//!
//! A folder of the view is **merged** from its **parts**: the folders with the same path in each branch. A name refers
//! to the file in the first part that has the name.

use std::collections::HashSet;
use std::ffi::CString;
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
    /// Indexes of dropped folders with whiteouts, whose order of names must stay while a program lists the folder.
    retired: Mutex<IdMap<Index>>,
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
    index: RwLock<BuiltIndex>,
    /// Names whose entry in the index may be stale.
    stale_names: Mutex<HashSet<CString>>,
}

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

    /// Adds the folder, unless another thread has added it meanwhile. Returns the folder that is kept.
    pub(crate) fn keep(&self, merged: MergedFolder) -> Arc<MergedFolder> {
        let retired =
            if merged.is_layered { lock(&self.retired).remove(&merged.id.0) } else { None };
        if let Some(index) = retired {
            merged.write_index().index = index;
        }
        let mut folders = self.write();
        Arc::clone(folders.entry(merged.id.0).or_insert_with(|| Arc::new(merged)))
    }

    /// Drops the folder. The next use looks its parts up again.
    pub(crate) fn drop_folder(&self, id: InodeId) -> Option<Arc<MergedFolder>> {
        let dropped = self.write().remove(&id.0)?;
        for part in &dropped.parts {
            self.part_fds.remove((id, part.branch));
        }
        self.retire(&dropped);
        Some(dropped)
    }

    /// Drops all folders as [`drop_folder`](Self::drop_folder) does, and returns their ids.
    pub(crate) fn drop_folders(&self) -> Vec<InodeId> {
        let dropped = std::mem::take(&mut *self.write());
        for folder in dropped.values() {
            self.retire(folder);
            folder.parts.iter().for_each(|part| self.part_fds.remove((folder.id, part.branch)));
        }
        dropped.values().map(|folder| folder.id).collect()
    }

    /// Keeps the index of a dropped folder. Its names are read again, and those that stay keep their order.
    fn retire(&self, dropped: &MergedFolder) {
        if dropped.is_layered {
            let built = std::mem::take(&mut *dropped.write_index());
            lock(&self.retired).insert(dropped.id.0, built.index);
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
            index: RwLock::default(),
            stale_names: Mutex::default(),
        }
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
