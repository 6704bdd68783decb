//! The file at a path: known from the pack where the pack is trusted, otherwise from the disk.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, TryLockError};

use thruway_pack::{Entry, Pack, Stamp};

use crate::code::CodeFlags;
use crate::disk::{self, Status};
use crate::folders::{DiskQuery, Folders, Observer, Probe};
use crate::kind;
use crate::listing::NameKind;
use crate::load_path::{self, LoadPath, Resolution};
use crate::path;
use crate::report::Count;
use crate::rights;

/// A cache of the state of files and folders. All methods may be called from any thread.
#[derive(Debug)]
pub struct Files {
    pack: Option<Pack<'static>>,
    is_frozen: bool,
    /// Whether the pack tells of this user which files may be read. Where access lists decide (Windows), a pack tells
    /// that of its owner alone.
    knows_rights: bool,
    /// The effective user ID.
    user: AtomicU32,
    /// Incremented by every event after which changes by another process must be noticed.
    epoch: AtomicU64,
    folders: Mutex<Folders>,
    /// Whether the interposed calls report this process's own changes and its contacts with other processes.
    is_interposed: bool,
    /// Whether a change was reported while another thread held the folders.
    has_missed_change: AtomicBool,
    /// Called before each query to the disk.
    observer: OnceLock<Observer>,
    /// The number of files whose stamp was queried.
    pub(crate) stats: Count,
}

/// The result of looking up a path.
#[derive(Debug, Clone, Copy)]
pub enum Lookup {
    /// A readable regular file.
    File(FoundFile),
    /// No file.
    Missing,
    /// The cache cannot tell; the caller must query the disk.
    Undecided,
}

/// A file that Ruby is about to open.
#[derive(Debug, Clone, Copy)]
pub struct FoundFile {
    /// The current stamp of the file; `None` if it was not queried, because the pack is frozen.
    pub stamp: Option<Stamp>,
    /// The entry of the feature in the pack, if there is one.
    pub entry: Option<Entry<'static>>,
    /// Whether the search that found the file has not ended yet, so that the folders need not be queried again.
    pub is_searched: bool,
}

impl FoundFile {
    /// Whether the file matches the entry, or the pack is trusted without comparison.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        match (self.entry, self.stamp) {
            (Some(entry), Some(stamp)) => entry.stamp() == stamp,
            (Some(_), None) => true,
            (None, _) => false,
        }
    }
}

impl Files {
    /// `is_interposed` tells whether changes of this process will be reported.
    pub(crate) fn new(pack: Option<Pack<'static>>, is_frozen: bool, is_interposed: bool) -> Self {
        Self {
            pack,
            is_frozen,
            knows_rights: true,
            user: AtomicU32::new(disk::user()),
            epoch: AtomicU64::new(0),
            folders: Mutex::new(Folders::new(pack, is_frozen, is_interposed)),
            is_interposed,
            has_missed_change: AtomicBool::new(false),
            observer: OnceLock::new(),
            stats: Count::default(),
        }
    }

    /// The same cache, with a pack of another user. Such a pack does not tell which files this user may read.
    #[cfg(windows)]
    pub(crate) fn of_another_user(self) -> Self {
        Self { knows_rights: false, ..self }
    }

    /// Registers an observer that is called before each query to the disk. The observer must not query these
    /// files itself.
    pub fn observe(&self, observer: Observer) {
        if self.observer.set(observer).is_ok()
            && let Some(mut folders) = self.folders()
        {
            folders.observer = Some(observer);
        }
    }

    fn observed(&self, path: &[u8], query: DiskQuery) {
        self.observer.get().iter().for_each(|observe| observe(path, query));
    }

    /// Marks the cache as possibly outdated, because this process has communicated with another process or
    /// has waited: changes that the other process made before must be noticed. May be called in a signal
    /// handler, and between `vfork` and `exec`.
    pub fn invalidate(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
    }

    /// The number of invalidations so far. Observations remain valid while the number stays the same.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    /// Invalidates everything, even a frozen pack, because a child of this process may have changed anything.
    /// May be called wherever [`invalidate`](Self::invalidate) may.
    pub fn invalidate_pack(&self) {
        self.has_missed_change.store(true, Ordering::SeqCst);
        self.invalidate();
    }

    /// Invalidates everything after the rights of this process have changed.
    pub fn rights_changed(&self) {
        self.user.store(disk::user(), Ordering::SeqCst);
        self.invalidate_pack();
    }

    /// Whether the pack is trusted without queries to the disk, except for changes by this process.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.is_frozen && self.folders().is_some_and(|folders| folders.is_frozen())
    }

    /// Records that this process has written the file at `path` or changed its permissions. Only a frozen
    /// pack is affected, since other modes query a file each time it is used.
    pub fn edited(&self, path: &[u8]) {
        if !self.is_frozen() || disk::is_device(path) {
            return;
        }
        let real = real(path);
        let real = disk::real_path_bytes(&real);
        let has_other_links = disk::status_of_target(&real)
            .is_some_and(|status| disk::has_other_links(&status) && rights::is_regular(&status));
        match self.folders() {
            Some(mut folders) if !has_other_links => {
                cleaned(path).iter().for_each(|path| folders.edited(path));
                folders.edited_by_all_names(&real);
            }
            _ => self.invalidate_pack(),
        }
    }

    /// Records that this process has created, moved or removed the file at `path`.
    pub fn changed(&self, path: &[u8]) {
        if disk::is_device(path) {
            return;
        }
        match (self.folders(), cleaned(path)) {
            (Some(mut folders), Some(path)) => folders.changed(&path),
            (Some(mut folders), None) => folders.changed_somewhere(),
            (None, _) => self.has_missed_change.store(true, Ordering::SeqCst),
        }
        self.edited(path);
    }

    /// Records that this process has opened, and possibly created, the file at `path`. A link's target is
    /// affected, not the link.
    pub fn opened(&self, path: &[u8]) {
        self.changed(path);
        if disk::status(path).is_ok_and(|status| disk::kind(&status) == NameKind::Link) {
            self.changed(&disk::real_path_bytes(&real(path)));
        }
    }

    /// Returns the load path with the given entries; `None` stands for an entry that is not a plain string.
    pub fn load_path<'a>(&self, entries: impl IntoIterator<Item = Option<&'a [u8]>>) -> LoadPath {
        match self.folders() {
            Some(mut folders) => LoadPath::new(&mut folders, entries),
            None => LoadPath::default(),
        }
    }

    /// Resolves a feature. A name that is not found is searched again with fresh observations, so that a
    /// newly created file is found.
    pub fn resolve(&self, load_path: &LoadPath, name: &[u8]) -> Resolution {
        let Some(mut folders) = self.folders() else { return Resolution::Unknown };
        let resolution = load_path.resolve(&mut folders, name);
        if resolution != Resolution::Nowhere || folders.is_frozen() {
            return resolution;
        }
        folders.revalidated(|folders| load_path.resolve(folders, name))
    }

    /// Whether the feature's place in the load path, or its absence, is known.
    #[must_use]
    pub fn knows(&self, load_path: &LoadPath, name: &[u8]) -> bool {
        let Some(mut folders) = self.folders() else { return false };
        load_path.resolve(&mut folders, name) != Resolution::Unknown
    }

    /// Whether a gem's folder may hold a feature of that name. `false` is exact; `true` may be wrong.
    #[must_use]
    pub fn may_hold(&self, folder: &[u8], name: &[u8]) -> bool {
        let Some(mut folders) = self.folders().filter(|_| path::is_clean(folder)) else {
            return true;
        };
        let base = folders.id(folder);
        load_path::may_hold(&mut folders, base, name)
    }

    /// Looks up a path that Ruby is about to load.
    #[must_use]
    pub fn look_up(&self, path: &[u8]) -> Lookup {
        if !path::is_clean(path) {
            return Lookup::Undecided;
        }
        let entry = self.pack.and_then(|pack| pack.find(kind::FEATURE, path));
        let probe = || self.folders().map(|mut folders| folders.probe_path(path));
        if entry.is_none() && probe() == Some(Probe::Absent) {
            return Lookup::Missing;
        }
        match entry {
            None if self.is_frozen() => Lookup::Undecided,
            Some(known) if self.is_frozen_at(path) && self.is_readable(&known) => {
                Lookup::File(FoundFile { stamp: None, entry, is_searched: false })
            }
            _ => self.look_up_on_disk(path, entry),
        }
    }

    /// Returns the real path of a folder, or of a regular file that is not a link; `None` if the disk must be
    /// queried.
    #[must_use]
    pub fn real_path(&self, path: &[u8]) -> Option<Vec<u8>> {
        if !path::is_clean(path) {
            return None;
        }
        let entry = self.pack.and_then(|pack| pack.find(kind::FEATURE, path));
        if entry.is_some() && self.is_frozen_at(path) {
            return self.real_path_below(path, false);
        }
        let mut folders = self.folders()?;
        let id = folders.id(path);
        folders.real_path(id).map(<[u8]>::to_vec)
    }

    /// Returns the real path of a file that is not a link itself. With `continues`, observations of the
    /// previous look-up stay valid.
    #[must_use]
    pub fn real_path_below(&self, path: &[u8], continues: bool) -> Option<Vec<u8>> {
        let (folder, name) = path::split(path)?;
        let mut folders = locked(self)?;
        folders.begin_lookup(self.epoch(), continues);
        let id = folders.id(folder);
        folders.real_path(id).map(|real| path::join(real, name))
    }

    /// Returns the kind of the file at a path whose components are known not to be links: a folder, or a feature of a
    /// frozen pack.
    #[cfg(windows)]
    #[must_use]
    pub fn real_kind(&self, path: &[u8]) -> Option<NameKind> {
        let is_feature = self.pack.is_some_and(|pack| pack.find(kind::FEATURE, path).is_some());
        let is_known = !is_feature || self.is_frozen_at(path);
        let is_real = is_known && self.real_path(path).is_some_and(|real| real == path);
        is_real.then_some(if is_feature { NameKind::File } else { NameKind::Folder })
    }

    /// Whether the last component of a path is spelled as in its folder, or is not there at all; `false` if that is
    /// unknown. Windows gives names a short form too, which is not in a listing that has this name.
    #[cfg(windows)]
    #[must_use]
    pub fn has_no_other_name(&self, path: &[u8]) -> bool {
        let Some((folder, name)) = path::split(path).filter(|_| path::is_clean(path)) else {
            return false;
        };
        let Some(mut folders) = self.folders() else { return false };
        let id = folders.id(folder);
        !folders.is_missing(id) && matches!(folders.probe(id, name), Probe::Absent | Probe::File)
    }

    /// Lists the folder of a file. A frozen pack notices that a file was replaced by the time of its folder,
    /// but only if the pack holds the folder's names.
    pub(crate) fn list_folder_of(&self, path: &[u8]) {
        if let (Some((folder, _)), Some(mut folders)) = (path::split(path), self.folders()) {
            let id = folders.id(folder);
            folders.names(id);
        }
    }

    /// Returns the stamp of the regular file that a path leads to.
    pub(crate) fn stamp_of_target(&self, path: &[u8]) -> Option<Stamp> {
        self.stats.add(1);
        self.observed(path, DiskQuery::Target);
        let status = disk::status_of_target(path)?;
        rights::is_regular(&status).then(|| disk::stamp(&status))
    }

    fn look_up_on_disk(&self, path: &[u8], entry: Option<Entry<'static>>) -> Lookup {
        self.stats.add(1);
        self.observed(path, DiskQuery::File);
        match disk::status_for_reading(path) {
            Ok(status)
                if rights::is_regular(&status) && self.may_read(path, &status, entry.as_ref()) =>
            {
                let stamp = Some(disk::stamp(&status));
                Lookup::File(FoundFile { stamp, entry, is_searched: false })
            }
            _ => Lookup::Undecided,
        }
    }

    /// Whether this process may read the file described by `status`.
    fn may_read(&self, path: &[u8], status: &Status, entry: Option<&Entry<'_>>) -> bool {
        let user = if self.is_interposed { self.user.load(Ordering::SeqCst) } else { disk::user() };
        let flags = entry.map(|entry| CodeFlags::from_bits(entry.flags()));
        let is_certain = flags.is_some_and(|flags| flags.has_plain_rights);
        is_certain && rights::is_certain(status, user) || rights::may_read(path)
    }

    /// Whether every user, or at least this process, may read the feature's file.
    fn is_readable(&self, feature: &Entry<'_>) -> bool {
        let is_open = self.knows_rights && CodeFlags::from_bits(feature.flags()).is_open;
        is_open || rights::may_read(feature.name())
    }

    /// Whether the pack is trusted about a path without a query.
    pub(crate) fn is_frozen_at(&self, path: &[u8]) -> bool {
        self.is_frozen && self.folders().is_some_and(|mut folders| folders.is_frozen_at(path))
    }

    /// The number of queries about folders.
    pub(crate) fn folder_lookups(&self) -> u64 {
        self.folders().map_or(0, |folders| folders.lookups)
    }

    /// Locks the folders; `None` while another thread holds them, since after a fork that thread may no
    /// longer exist.
    pub(crate) fn folders(&self) -> Option<MutexGuard<'_, Folders>> {
        let mut folders = locked(self)?;
        folders.begin_lookup(self.epoch(), false);
        Some(folders)
    }
}

/// Locks the folders without starting a look-up.
fn locked(files: &Files) -> Option<MutexGuard<'_, Folders>> {
    let mut folders = match files.folders.try_lock() {
        Ok(folders) => folders,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return None,
    };
    if files.has_missed_change.swap(false, Ordering::SeqCst) {
        folders.changed_somewhere();
    }
    Some(folders)
}

/// Returns the clean form of a path; `None` if its folder does not exist, or if the path does not say which file it is.
pub(crate) fn cleaned(path: &[u8]) -> Option<Vec<u8>> {
    let path = std::path::absolute(disk::native_path(path)).ok()?;
    let bytes = disk::path_bytes(&path);
    if path::is_clean(&bytes) {
        // The case of other letters is folded by the file system alone.
        return (cfg!(not(windows)) || bytes.is_ascii()).then(|| bytes.into_owned());
    }
    #[expect(
        clippy::disallowed_methods,
        reason = "nothing is opened: only where the folder is counts"
    )]
    let folder = path.parent()?.canonicalize().ok()?;
    Some(path::join(&disk::path_bytes(&folder), &disk::path_bytes(path.file_name()?.as_ref())))
}

/// Returns the path without links; the path itself if the file does not exist.
fn real(path: &[u8]) -> PathBuf {
    let path = disk::native_path(path);
    #[expect(
        clippy::disallowed_methods,
        reason = "nothing is opened: only which file was changed counts"
    )]
    path.canonicalize().unwrap_or_else(|_| path.into_owned())
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};

    #[test]
    fn what_this_process_is_told_makes_it_look_again() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::new(None, false, true);
        let name = folder.path().as_os_str().as_bytes().to_vec();
        let load_path = files.load_path([Some(&name[..])]);
        std::fs::write(folder.path().join("there.rb"), "").unwrap();
        assert!(files.knows(&load_path, b"there"));
        std::fs::rename(folder.path().join("there.rb"), folder.path().join("moved.rb")).unwrap();
        let found = |name: &[u8]| matches!(files.resolve(&load_path, name), Resolution::Found(_));
        assert!(found(b"there"), "nothing was said");
        files.invalidate();
        assert!(!found(b"there") && found(b"moved"));
    }

    #[test]
    fn where_nothing_is_told_each_look_up_looks_again() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::new(None, false, false);
        let base = folder.path().as_os_str().as_bytes().to_vec();
        let load_path = files.load_path([Some(&base[..])]);
        std::fs::write(folder.path().join("there.rb"), "").unwrap();
        let found = |name: &[u8]| matches!(files.resolve(&load_path, name), Resolution::Found(_));
        assert!(found(b"there"));
        std::fs::rename(folder.path().join("there.rb"), folder.path().join("moved.rb")).unwrap();
        assert!(!found(b"there") && found(b"moved"), "nothing was said");
    }

    #[test]
    fn what_a_look_up_has_seen_counts_while_what_it_has_found_is_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().as_os_str().as_bytes().to_vec();
        std::fs::write(folder.path().join("there.rb"), "").unwrap();
        let files = Files::new(None, false, false);
        let load_path = files.load_path([Some(&base[..])]);
        let Resolution::Found(path) = files.resolve(&load_path, b"there") else { panic!() };
        let lookups = || locked(&files).unwrap().lookups;
        let before = lookups();
        assert_eq!(files.real_path_below(&path, true).as_ref(), Some(&path));
        assert_eq!(lookups(), before);
        assert_eq!(files.real_path_below(&path, false).as_ref(), Some(&path));
        assert!(lookups() > before, "that is another look-up");
    }

    #[test]
    fn a_release_is_looked_at_once_even_there() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("gems/rack-3.0.8/lib");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("there.rb"), "").unwrap();
        let files = Files::new(None, false, false);
        let load_path = files.load_path([Some(folder.as_os_str().as_bytes())]);
        let found = || matches!(files.resolve(&load_path, b"there"), Resolution::Found(_));
        assert!(found());
        let lookups = files.folder_lookups();
        assert!(found() && found());
        assert_eq!(files.folder_lookups(), lookups);
    }

    #[test]
    fn what_the_disk_is_asked_is_told_before() {
        static TOLD: Mutex<Vec<(Vec<u8>, DiskQuery)>> = Mutex::new(Vec::new());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.rb").into_os_string().into_vec();
        let files = Files::new(None, false, true);
        files.observe(|path, asked| TOLD.lock().unwrap().push((path.to_vec(), asked)));
        let load_path = files.load_path([Some(folder.path().as_os_str().as_bytes())]);
        assert!(
            !files.knows(&load_path, b"a")
                || files.resolve(&load_path, b"a") == Resolution::Nowhere
        );
        std::fs::write(folder.path().join("a.rb"), "").unwrap();
        files.invalidate();
        assert!(matches!(files.look_up(&path), Lookup::File(_)));
        let told = TOLD.lock().unwrap();
        let names = (folder.path().as_os_str().as_bytes().to_vec(), DiskQuery::Names);
        assert!(told.contains(&names) && told.contains(&(path, DiskQuery::File)), "{told:?}");
    }

    #[test]
    fn what_is_made_by_a_links_path_is_there_by_every_path() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name).into_os_string().into_vec();
        std::fs::create_dir_all(root.path().join("one/sub")).unwrap();
        std::os::unix::fs::symlink("one", root.path().join("link")).unwrap();
        let files = Files::new(None, false, true);
        let load_path = files.load_path([Some(&at("link")[..])]);
        assert!(files.knows(&load_path, b"sub/late.rb"), "it is nowhere");
        std::fs::write(root.path().join("link/sub/late.rb"), "").unwrap();
        files.changed(&at("link/sub/late.rb"));
        let found = load_path.resolve(&mut files.folders().unwrap(), b"sub/late.rb");
        assert_eq!(found, Resolution::Found(at("one/sub/late.rb")));
    }

    #[test]
    fn what_is_made_at_the_end_of_a_link_is_there() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name).into_os_string().into_vec();
        std::fs::create_dir(root.path().join("lib")).unwrap();
        std::os::unix::fs::symlink("lib/late.rb", root.path().join("link")).unwrap();
        let files = Files::new(None, false, true);
        let load_path = files.load_path([Some(&at("lib")[..])]);
        assert!(files.knows(&load_path, b"late"), "it is nowhere");
        std::fs::write(root.path().join("link"), "").unwrap();
        files.opened(&at("link"));
        let found = load_path.resolve(&mut files.folders().unwrap(), b"late");
        assert_eq!(found, Resolution::Found(at("lib/late.rb")));
    }

    #[test]
    fn a_change_while_another_thread_has_the_folders_is_minded_later() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("late.rb");
        let files = Files::new(None, false, true);
        let probe = || {
            let mut folders = files.folders().unwrap();
            let id = folders.id(folder.path().as_os_str().as_bytes());
            folders.probe(id, b"late.rb")
        };
        assert_eq!(probe(), Probe::Absent);
        std::fs::write(&path, "").unwrap();
        assert_eq!(probe(), Probe::Absent, "nothing was said");
        let theirs = files.folders();
        files.changed(path.as_os_str().as_bytes());
        drop(theirs);
        assert_eq!(probe(), Probe::File);
    }
}
