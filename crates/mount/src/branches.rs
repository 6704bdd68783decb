//! Combines several sources into a view.
//!
//! A folder of the view is **merged** from its **parts**: the folders with the same path in each branch. A name refers
//! to the file in the first part that has the name.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

use rustix::io::Errno;
use thruway_sys::handle::FileHandle;

use crate::descriptors::Descriptors;
use crate::id_map::IdMap;
use crate::index::Index;
use crate::inodes::{Identity, InodeId, lock};
use crate::roots::Roots;

/// The maximum number of names of a folder that may be stale. If there are more, the folder is read again.
const STALE_NAMES_MAX: usize = 4096;

/// The sources, and the merged folders that the kernel knows.
#[derive(Debug)]
pub(crate) struct Branches {
    roots: Arc<Roots>,
    folders: RwLock<KnownFolders>,
    /// Open parts, by folder and branch.
    part_fds: Descriptors,
    /// Dropped folders that the kernel knows. Locked after `folders`.
    retired: Mutex<IdMap<RetiredFolder>>,
    /// The last read errors of branches.
    failures: Mutex<IdMap<Errno>>,
}

#[derive(Debug, Default)]
struct KnownFolders {
    folders: IdMap<Arc<MergedFolder>>,
    /// The number of times that folders were dropped.
    drops: u64,
}

/// The folder that a branch contributes to a merged folder.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub(crate) branch: u16,
    pub(crate) identity: Identity,
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
    names: Arc<FolderNames>,
    /// The names of the dropped folder that this one replaces, until the own index is built. The order of names stays
    /// while a program lists them.
    before: Mutex<Option<Arc<FolderNames>>>,
}

/// The names of a merged folder, which outlive the folder.
#[derive(Debug, Default)]
pub(crate) struct FolderNames {
    /// The names of all parts, built when a request first needs them.
    built: RwLock<BuiltIndex>,
    /// Names whose entry in the index may be stale.
    stale: Mutex<HashSet<CString>>,
    /// Whether a part could not be read.
    is_partial: AtomicBool,
    /// Whether the names were taken over from a dropped folder.
    are_inherited: AtomicBool,
}

#[derive(Debug, Default)]
pub(crate) struct BuiltIndex {
    pub(crate) index: Index,
    pub(crate) at: Option<Instant>,
}

/// The names that were known of a folder when it was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DroppedNames {
    /// They hold if the folder has the same parts: their changes are reported.
    Current,
    /// They are read again.
    Outdated,
}

/// A folder that was dropped.
#[derive(Debug)]
struct RetiredFolder {
    parts: Vec<(u16, Identity)>,
    is_merged: bool,
    names: Arc<FolderNames>,
    are_names: DroppedNames,
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
        self.read().folders.get(&id.0).cloned()
    }

    /// Returns the number of times that folders were dropped, for [`keep`](Self::keep).
    pub(crate) fn drops(&self) -> u64 {
        self.read().drops
    }

    /// Adds the folder, unless another thread has added it meanwhile. `drops` was read before the parts were looked up.
    /// Returns the folder that is kept, or the given one as an error if folders were dropped meanwhile, so that its
    /// parts may not be those of the sources any more.
    ///
    /// `on_shared_part` runs if the folder has a part of the dropped folder that it replaces.
    pub(crate) fn keep(
        &self,
        mut merged: MergedFolder,
        drops: u64,
        on_shared_part: impl FnOnce(),
    ) -> Result<Arc<MergedFolder>, MergedFolder> {
        let mut known = self.write();
        if known.drops != drops {
            return Err(merged);
        }
        if let Some(kept) = known.folders.get(&merged.id.0) {
            return Ok(Arc::clone(kept));
        }
        if let Some(retired) = lock(&self.retired).remove(&merged.id.0) {
            if retired.shares_a_part_with(&merged) {
                on_shared_part();
            }
            merged.replace(retired);
        }
        let kept = Arc::new(merged);
        known.folders.insert(kept.id.0, Arc::clone(&kept));
        Ok(kept)
    }

    /// Drops the folder, whose parts may be others now. The next use looks its parts up again.
    pub(crate) fn drop_folder(&self, id: InodeId) {
        let mut known = self.write();
        known.drops += 1;
        let Some(dropped) = known.folders.remove(&id.0) else { return };
        self.retire(&dropped, DroppedNames::Current);
        drop(known);
        self.close_parts(&dropped);
    }

    /// Drops all folders as [`drop_folder`](Self::drop_folder) does, and returns their ids.
    pub(crate) fn drop_folders(&self, are_names: DroppedNames) -> Vec<InodeId> {
        let mut known = self.write();
        known.drops += 1;
        let dropped = std::mem::take(&mut known.folders);
        if are_names == DroppedNames::Outdated {
            lock(&self.retired).values_mut().for_each(|retired| retired.are_names = are_names);
        }
        dropped.values().for_each(|folder| self.retire(folder, are_names));
        drop(known);
        dropped.values().for_each(|folder| self.close_parts(folder));
        dropped.values().map(|folder| folder.id).collect()
    }

    /// Keeps the names of a dropped folder. Those that are read again and stay keep their places, so that a listing
    /// goes on where it was.
    fn retire(&self, dropped: &MergedFolder, are_names: DroppedNames) {
        let before = lock(&dropped.before).clone();
        let retired = RetiredFolder {
            parts: dropped.parts.iter().map(|part| (part.branch, part.identity)).collect(),
            is_merged: dropped.is_merged(),
            are_names: if before.is_none() && dropped.is_watched {
                are_names
            } else {
                DroppedNames::Outdated
            },
            names: before.unwrap_or_else(|| Arc::clone(&dropped.names)),
        };
        lock(&self.retired).insert(dropped.id.0, retired);
    }

    fn close_parts(&self, dropped: &MergedFolder) {
        dropped.parts.iter().for_each(|part| self.part_fds.remove((dropped.id, part.branch)));
    }

    /// Drops a folder that the kernel has forgotten.
    pub(crate) fn forget(&self, id: InodeId) {
        let mut known = self.write();
        let forgotten = known.folders.remove(&id.0);
        lock(&self.retired).remove(&id.0);
        drop(known);
        forgotten.iter().for_each(|folder| self.close_parts(folder));
    }

    /// Marks a name of a folder as stale in the index, also if the folder was dropped.
    pub(crate) fn mark_stale(&self, id: InodeId, name: &CStr) {
        let known = self.read();
        let names = match known.folders.get(&id.0) {
            Some(merged) => merged.is_merged().then(|| Arc::clone(&merged.names)),
            None => {
                let retired = lock(&self.retired);
                let retired = retired.get(&id.0).filter(|retired| retired.is_merged);
                retired.map(|retired| Arc::clone(&retired.names))
            }
        };
        drop(known);
        names.iter().for_each(|names| names.mark_stale(name));
    }

    /// Whether a folder of this name, just added or removed, may be a part of a merged folder.
    pub(crate) fn may_be_part(&self, id: InodeId, name: &[u8]) -> bool {
        let known = self.read();
        let retired = lock(&self.retired);
        let (is_merged, names) = match (known.folders.get(&id.0), retired.get(&id.0)) {
            (Some(merged), _) => (merged.is_merged(), Arc::clone(&merged.names)),
            (None, Some(retired)) if retired.are_names == DroppedNames::Current => {
                (retired.is_merged, Arc::clone(&retired.names))
            }
            // Nothing is known about the folder, so assume that it may be a part.
            _ => return !known.folders.is_empty(),
        };
        drop((retired, known));
        is_merged && names.may_have(name)
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

    /// Returns the number of merged folders, and the number of names in their indexes.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let known = self.read();
        let names = known.folders.values().map(|merged| merged.read_index().index.len()).sum();
        (known.folders.len(), names)
    }

    fn read(&self) -> RwLockReadGuard<'_, KnownFolders> {
        self.folders.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, KnownFolders> {
        self.folders.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RetiredFolder {
    fn shares_a_part_with(&self, merged: &MergedFolder) -> bool {
        let has = |part: &Part| self.parts.iter().any(|(_, it)| it.is_same_file(&part.identity));
        merged.parts.iter().any(has)
    }

    fn has_the_parts_of(&self, merged: &MergedFolder) -> bool {
        let is_same = |((branch, identity), part): (&(u16, Identity), &Part)| {
            *branch == part.branch && identity.is_same_file(&part.identity)
        };
        self.parts.len() == merged.parts.len() && self.parts.iter().zip(&merged.parts).all(is_same)
    }
}

impl FolderNames {
    fn mark_stale(&self, name: &CStr) {
        let mut stale = lock(&self.stale);
        if stale.len() < STALE_NAMES_MAX {
            stale.insert(name.to_owned());
        } else {
            stale.clear();
            self.write().at = None;
        }
    }

    fn may_have(&self, name: &[u8]) -> bool {
        let is_stale = CString::new(name).is_ok_and(|name| lock(&self.stale).contains(&name));
        let built = self.read();
        is_stale || built.at.is_none() || built.index.find(name).is_some()
    }

    fn read(&self) -> RwLockReadGuard<'_, BuiltIndex> {
        self.built.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BuiltIndex> {
        self.built.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MergedFolder {
    pub(crate) fn new(id: InodeId, parts: Vec<Part>, is_watched: bool, is_layered: bool) -> Self {
        let (names, before) = Default::default();
        Self { id, parts, is_watched, is_layered, names, before }
    }

    /// Takes the names of the dropped folder that this one replaces. If they hold no more, the names that stay keep
    /// their places.
    fn replace(&mut self, retired: RetiredFolder) {
        if !self.is_merged() || !retired.is_merged {
            return;
        }
        let are_current = retired.are_names == DroppedNames::Current
            && self.is_watched
            && retired.has_the_parts_of(self)
            && !retired.names.is_partial.load(Relaxed);
        if are_current {
            self.names = retired.names;
            self.names.are_inherited.store(true, Relaxed);
        } else {
            self.before = Mutex::new(Some(retired.names));
        }
    }

    /// Begins to build the index. A folder that replaces a dropped one begins with a copy of its index, which other
    /// threads may still use.
    pub(crate) fn begin_build(&self, built: &mut BuiltIndex) {
        let before = lock(&self.before).take();
        if let Some(before) = before {
            built.index = before.read().index.clone();
        }
        self.names.is_partial.store(false, Relaxed);
        self.names.are_inherited.store(false, Relaxed);
        built.index.begin();
    }

    /// Whether the names were taken over from a dropped folder, and not read since.
    pub(crate) fn inherits_names(&self) -> bool {
        self.names.are_inherited.load(Relaxed)
    }

    /// Notes that a part could not be read.
    pub(crate) fn note_partial(&self) {
        self.names.is_partial.store(true, Relaxed);
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
        lock(&self.names.stale)
    }

    pub(crate) fn read_index(&self) -> RwLockReadGuard<'_, BuiltIndex> {
        self.names.read()
    }

    pub(crate) fn write_index(&self) -> RwLockWriteGuard<'_, BuiltIndex> {
        self.names.write()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source_table::SourceTable;

    fn branches() -> Branches {
        let roots = Roots::new(Vec::new(), SourceTable::default());
        Branches::new(Arc::new(roots), 1)
    }

    /// A folder with parts of these numbers.
    fn folder(numbers: &[u64]) -> MergedFolder {
        let held: Arc<OwnedFd> = Arc::new(std::fs::File::open("/").unwrap().into());
        let identity = |number| Identity { volume: 0, number, birth: 1, kind: 4, young: false };
        let parts = numbers.iter().zip(0..).map(|(&number, branch)| Part {
            branch,
            identity: identity(number),
            opener: Opener::Held(Arc::clone(&held)),
        });
        MergedFolder::new(InodeId(7), parts.collect(), true, false)
    }

    fn keep(branches: &Branches, folder: MergedFolder) -> (Arc<MergedFolder>, bool) {
        let mut is_continued = false;
        let kept = branches.keep(folder, branches.drops(), || is_continued = true);
        (kept.unwrap(), is_continued)
    }

    fn build(folder: &MergedFolder, names: &[&str]) {
        let mut built = folder.write_index();
        folder.begin_build(&mut built);
        names.iter().for_each(|name| _ = built.index.insert(name.as_bytes(), 0, 8, 0));
        built.index.end();
        built.at = Some(Instant::now());
    }

    fn names(folder: &MergedFolder) -> Vec<(u32, String)> {
        let built = folder.read_index();
        let text = |name: &[u8]| String::from_utf8(name.to_vec()).unwrap();
        built.index.after(0).map(|(place, name, _)| (place, text(name))).collect()
    }

    #[test]
    fn names_keep_their_places_when_their_folder_is_dropped() {
        let branches = branches();
        build(&keep(&branches, folder(&[1, 2])).0, &["a", "b", "c"]);
        branches.drop_folders(DroppedNames::Outdated);
        // A folder that was not used in the meantime passes the places on.
        keep(&branches, folder(&[1, 2]));
        branches.drop_folder(InodeId(7));
        let (kept, _) = keep(&branches, folder(&[1, 2]));
        assert!(kept.read_index().at.is_none());
        build(&kept, &["new", "c", "a"]);
        assert_eq!(names(&kept), [(1, "a".into()), (3, "c".into()), (4, "new".into())]);
    }

    #[test]
    fn names_hold_if_only_the_parts_were_looked_up_again() {
        let branches = branches();
        build(&keep(&branches, folder(&[1, 2])).0, &["a", "b"]);
        branches.drop_folders(DroppedNames::Current);
        branches.mark_stale(InodeId(7), c"b");
        let (kept, _) = keep(&branches, folder(&[1, 2]));
        assert!(kept.read_index().at.is_some());
        assert!(kept.stale_names().contains(c"b") && kept.inherits_names());
        // Names are read again if they were outdated, or if the folder has other parts.
        branches.drop_folders(DroppedNames::Current);
        branches.drop_folders(DroppedNames::Outdated);
        assert!(keep(&branches, folder(&[1, 2])).0.read_index().at.is_none());
        for parts in [&[1, 3][..], &[2, 1], &[1, 2, 3]] {
            branches.drop_folder(InodeId(7));
            build(&keep(&branches, folder(&[1, 2])).0, &["a"]);
            branches.drop_folder(InodeId(7));
            assert!(keep(&branches, folder(parts)).0.read_index().at.is_none(), "{parts:?}");
        }
    }

    #[test]
    fn names_of_which_a_part_could_not_be_read_are_read_again() {
        let branches = branches();
        let (first, _) = keep(&branches, folder(&[1, 2]));
        build(&first, &["a"]);
        first.note_partial();
        branches.drop_folder(InodeId(7));
        assert!(keep(&branches, folder(&[1, 2])).0.read_index().at.is_none());
    }

    #[test]
    fn a_folder_continues_while_it_keeps_a_part() {
        let branches = branches();
        assert!(!keep(&branches, folder(&[1, 2])).1);
        for (parts, is_continued) in
            [(&[2][..], true), (&[3, 2], true), (&[3], true), (&[4], false), (&[4, 5], true)]
        {
            branches.drop_folder(InodeId(7));
            assert_eq!(keep(&branches, folder(parts)).1, is_continued, "{parts:?}");
        }
    }

    #[test]
    fn parts_that_were_looked_up_before_folders_were_dropped_are_not_kept() {
        let branches = branches();
        let drops = branches.drops();
        branches.drop_folders(DroppedNames::Current);
        assert!(branches.keep(folder(&[1]), drops, || ()).is_err());
        assert!(branches.get(InodeId(7)).is_none());
    }

    #[test]
    fn a_folder_with_too_many_stale_names_is_read_again() {
        let branches = branches();
        let (kept, _) = keep(&branches, folder(&[1, 2]));
        build(&kept, &["a"]);
        for number in 0..=STALE_NAMES_MAX {
            assert!(kept.read_index().at.is_some());
            branches.mark_stale(InodeId(7), &CString::new(number.to_string()).unwrap());
        }
        assert!(kept.read_index().at.is_none() && kept.stale_names().is_empty());
    }

    #[test]
    fn nothing_is_kept_of_a_folder_that_the_kernel_has_forgotten() {
        let branches = branches();
        build(&keep(&branches, folder(&[1, 2])).0, &["a", "b"]);
        branches.forget(InodeId(7));
        assert!(lock(&branches.retired).is_empty());
        let (kept, _) = keep(&branches, folder(&[1, 2]));
        build(&kept, &["b"]);
        assert_eq!(names(&kept), [(1, "b".into())]);
    }
}
