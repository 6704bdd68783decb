//! Follows file systems that are mounted and unmounted at the sources and below them.
//!
//! The kernel reports that the table of mounts has changed, but not how. So the table is compared with the previous
//! one, and the kernel's caches are invalidated for each name on which a file system was mounted or from which one was
//! unmounted.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::fs::{self, Mode, OFlags, StatxAttributes};
use rustix::io::Errno;
use thruway_fuse::Notification;

use super::connection::Connection;
use super::entries::each_entry;
use super::files::Files;
use super::folders::Folders;
use super::stat::{identity, stat_fd};
use crate::branches::DroppedNames;
use crate::inodes::{InodeId, lock};
use crate::mounts::{self, MountTable, TableChanges, TableEntry};
use crate::plan::Presence;
use crate::roots::{Root, Roots};
use crate::source_table::{SourceEntry, SourceTable};
use crate::sources::{self, Absence, Place};
use crate::volumes::Volumes;

/// The interval at which absent sources are looked for.
const ABSENT_INTERVAL: Duration = Duration::from_secs(2);

/// The size of the buffer for the names of a root.
const RAW_BYTES: usize = 64 * 1024;

/// The sources of a mount, as a worker receives them.
#[derive(Debug)]
pub(crate) struct SourcePlaces {
    pub(crate) table: SourceTable,
    /// The conditions under which a source counts as present.
    pub(crate) presence: Presence,
}

impl SourcePlaces {
    /// Returns the present roots. `held` contains the previous ones: sources that are not followed stay, and so does a
    /// folder that was only renamed.
    fn find(
        &mut self,
        held: &[Result<Root, Absence>],
        table: &MountTable,
        volumes: &Volumes,
    ) -> Vec<Result<Root, Absence>> {
        let mut all: Vec<Result<Root, Absence>> = Vec::new();
        for (branch, entry) in self.table.entries.iter_mut().enumerate() {
            let before = held.get(branch);
            let (path, presence) = (&entry.spec.path, &self.presence);
            let root = match &entry.place {
                _ if entry.is_removed => Err(Absence::Removed),
                None => before.cloned().unwrap_or(Err(Absence::Failed(Errno::STALE))),
                Some(place) => {
                    reserving(place, volumes, (path, presence)).and_then(|(fd, now)| match before {
                        Some(Ok(root)) if root.is_kept(&now) => Ok(root.clone()),
                        _ => Root::found(fd, now, table, volumes).map_err(Absence::Failed),
                    })
                }
            };
            let is_again = |root: &Root| {
                let earlier = all.iter().flatten().filter_map(|other| other.place);
                root.place.is_some_and(|now| earlier.into_iter().any(|it| it.is_same_folder(&now)))
            };
            let root =
                if root.as_ref().is_ok_and(is_again) { Err(Absence::Duplicate) } else { root };
            if let (Ok(found), Some(place)) = (&root, &mut entry.place)
                && let Some(now) = found.place
            {
                place.appear_at(now);
            }
            all.push(root);
        }
        all
    }
}

impl Root {
    /// Creates the root of a source that is not followed.
    fn unfollowed(fd: OwnedFd) -> Self {
        let table = MountTable::read().unwrap_or_default();
        let is_whole = is_whole(&fd, &table);
        Self { fd: Arc::new(fd), place: None, is_whole }
    }

    fn found(
        fd: OwnedFd,
        now: Place,
        table: &MountTable,
        volumes: &Volumes,
    ) -> Result<Self, Errno> {
        // Opens the folder through its own mount instead of the private copy.
        let again = || fs::openat(&fd, c".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        volumes.of(&stat_fd(&fd)?, again)?;
        let is_whole = is_whole(&fd, table);
        Ok(Self { fd: Arc::new(sources::hold(fd, table)), place: Some(now), is_whole })
    }

    /// Whether the folder remains the source although another folder now has its path on the same mount.
    fn is_kept(&self, now: &Place) -> bool {
        self.place.is_some_and(|place| place.is_on_same_mount(now) && !place.is_same_folder(now))
    }
}

/// Finds the source. If it is absent, its file system keeps its index.
fn reserving(
    place: &Place,
    volumes: &Volumes,
    (path, presence): (&Path, &Presence),
) -> Result<(OwnedFd, Place), Absence> {
    place.find(path, presence).inspect_err(|_| {
        place.device().into_iter().for_each(|device| volumes.reserve(device));
    })
}

/// Whether the folder is a mount point that shows its file system from the root, not a part of it.
fn is_whole(fd: &OwnedFd, table: &MountTable) -> bool {
    let is_top =
        stat_fd(fd).is_ok_and(|stat| stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT));
    let entry = sources::mount_number(fd).ok().and_then(|number| table.get(number));
    is_top && entry.is_some_and(|entry| entry.is_whole)
}

/// Follows the mounts of a view.
#[derive(Debug)]
pub(super) struct MountChanges {
    sources: Mutex<SourcePlaces>,
    is_followed: bool,
    /// The mounts that concerned the sources at the last check.
    last: Mutex<Vec<TableEntry>>,
    /// Held while file systems are released.
    releasing: Mutex<()>,
}

impl MountChanges {
    /// Opens the sources. `held` contains the descriptors of sources that are not followed.
    pub(super) fn open(
        mut sources: SourcePlaces,
        held: Vec<OwnedFd>,
    ) -> (Self, Arc<Roots>, Arc<Volumes>) {
        let is_followed = sources.table.is_followed();
        let volumes = Arc::new(Volumes::new(is_followed));
        let table = MountTable::read().unwrap_or_default();
        let mut held = held.into_iter();
        let mut held_root = |place: &Option<Place>| match place {
            Some(_) => Err(Absence::Unmounted),
            None => held.next().map(Root::unfollowed).ok_or(Absence::Failed(Errno::STALE)),
        };
        let held: Vec<_> = {
            let entries = sources.table.entries.iter();
            entries.map(|entry| held_root(&entry.place)).collect()
        };
        let roots = sources.find(&held, &table, &volumes);
        let roots = Arc::new(Roots::new(roots, sources.table.clone()));
        let (last, releasing) = Default::default();
        let changes = Self { sources: Mutex::new(sources), is_followed, last, releasing };
        (changes, roots, volumes)
    }

    /// Follows mounts on the calling thread; returns only if no source is followed, or on an error. `close_idle` closes
    /// backing files that are not in use.
    pub(super) fn run(&self, view: &FollowingView<'_>, close_idle: impl Fn()) -> Result<(), Errno> {
        if !self.is_followed {
            return Ok(());
        }
        let changes = TableChanges::new().map_err(|_| Errno::NOENT)?;
        loop {
            // Mounts may already have changed since the sources were opened.
            if let Ok(table) = MountTable::read() {
                self.apply(view, &table);
                close_idle();
            }
            // A folder that merely appears changes no mount.
            let is_any_absent = !view.files.roots.absent().is_empty();
            changes.wait(is_any_absent.then_some(ABSENT_INTERVAL))?;
        }
    }

    /// Makes these the sources, on the calling thread.
    pub(super) fn set_sources(&self, view: &FollowingView<'_>, table: SourceTable) {
        lock(&self.sources).table.replace(table);
        if let Ok(mounts) = MountTable::read() {
            self.apply(view, &mounts);
        }
    }

    fn apply(&self, view: &FollowingView<'_>, table: &MountTable) {
        // Held to the end, since sources and mounts may change at the same time.
        let mut sources = lock(&self.sources);
        let below = paths_below(&sources.table);
        let now = concerning(view, table, &below);
        let before = std::mem::replace(&mut *lock(&self.last), now.clone());
        let roots = view.files.roots.all();
        let found = sources.find(&roots, table, &view.files.volumes);
        let is_reordered = view.files.roots.table().order != sources.table.order;
        let absent = Err(Absence::Removed);
        let with_old = |(branch, new)| (roots.get(branch).unwrap_or(&absent), new);
        let moved: Vec<_> = found
            .iter()
            .enumerate()
            .map(with_old)
            .filter(|(old, new)| is_reordered || place_of(old) != place_of(new))
            .collect();
        if moved.is_empty() && now == before {
            // The rights of the mount in a source may have changed.
            view.files.roots.replace_all(keeping_reasons(&roots, &found), sources.table.clone());
            return;
        }
        let mut names = HashSet::new();
        for (old, new) in moved.iter() {
            [old, new].iter().for_each(|root| add_names(root, &mut names));
        }
        view.files.roots.replace_all(found.clone(), sources.table.clone());
        let points = changed_points(&before, &now);
        // The names of a file system are looked up again before the file system is released, so that the names that it
        // hid appear without an error.
        points.iter().for_each(|point| invalidate_point(view, point, &below));
        // Other mounts show nothing else below the sources.
        let is_below = |point: &PathBuf| below.iter().any(|source| point.starts_with(source));
        let of_folders = match moved.is_empty() && !points.iter().any(is_below) {
            true => DroppedNames::Current,
            false => DroppedNames::Outdated,
        };
        let dropped = self.release(view, table, (!moved.is_empty(), of_folders));
        points.iter().for_each(|point| invalidate_point(view, point, &below));
        names.iter().for_each(|name| view.invalidate_name(InodeId::ROOT, name));
        dropped.iter().for_each(|id| view.invalidate_folder(*id));
        if !moved.is_empty() {
            view.invalidate_folder(InodeId::ROOT);
        }
        if of_folders == DroppedNames::Outdated {
            // A folder stays the same inode when a disk is mounted on one of its parts, and so do the names in it.
            view.invalidate_all_names();
        }
    }
}

impl MountChanges {
    /// Releases the file systems that were unmounted, and all that leads to them. Returns the merged folders that were
    /// dropped.
    fn release(
        &self,
        view: &FollowingView<'_>,
        table: &MountTable,
        (has_new_root, of_folders): (bool, DroppedNames),
    ) -> Vec<InodeId> {
        // A look-up may wait for the end, so the kernel must not be notified here: it may wait for the look-up.
        let _releasing = lock(&self.releasing);
        view.files.volumes.follow(table);
        if has_new_root {
            view.note_new_root();
        }
        view.files.close_all();
        let branches = view.folders.branches();
        branches.map(|all| all.drop_folders(of_folders)).unwrap_or_default()
    }

    /// Waits for the end of a change of the sources, after which the view shows nothing of the previous ones.
    pub(super) fn wait_for_change(&self) {
        drop(lock(&self.sources));
    }

    /// Waits until no file system is being released.
    pub(super) fn wait_for_release(&self) {
        drop(lock(&self.releasing));
    }
}

/// Returns the mounts that concern the sources, which are at `below`: mounts at the sources and below, mounts that lead
/// to them, and mounts on top of the latter.
fn concerning(view: &FollowingView<'_>, table: &MountTable, below: &[PathBuf]) -> Vec<TableEntry> {
    let own = view.files.volumes.mounts();
    let concerns = |entry: &&TableEntry| {
        own.contains(&entry.id)
            || own.contains(&entry.parent)
            || below.iter().any(|source| entry.target.starts_with(source))
    };
    table.entries().iter().filter(concerns).cloned().collect()
}

/// Invalidates the name that this mount point has in the view of the sources at `below`.
fn invalidate_point(view: &FollowingView<'_>, point: &Path, below: &[PathBuf]) {
    for source in below {
        let Ok(below) = point.strip_prefix(source) else { continue };
        let (Some(above), Some(name)) = (below.parent(), below.file_name()) else { continue };
        for (_, root) in view.files.roots.present() {
            if let Some(id) = known_folder(view.files, &root, above) {
                view.invalidate_name(id, name.as_bytes());
                view.invalidate_folder(id);
            }
        }
    }
}

/// Returns the paths of the sources without symbolic links.
fn paths_below(table: &SourceTable) -> Vec<PathBuf> {
    let path = |entry: &SourceEntry| {
        let spec = &entry.spec;
        if entry.place.is_none() {
            // The path may lead through the mount itself.
            return spec.path.clone();
        }
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let opened = fs::openat(fs::CWD, &spec.path, flags, Mode::empty());
        opened.and_then(|fd| sources::path_of(&fd)).unwrap_or_else(|_| spec.path.clone())
    };
    table.entries.iter().filter(|entry| !entry.is_removed).map(path).collect()
}

/// The parts of a view that following mounts needs.
pub(super) struct FollowingView<'a> {
    pub(super) files: &'a Files,
    pub(super) folders: &'a Folders,
    pub(super) connection: &'a Connection,
}

impl FollowingView<'_> {
    /// Replaces the root of the mount in the table of inodes.
    fn note_new_root(&self) {
        self.folders.watches.forget_whole();
        let Ok(root) = self.files.roots.first() else { return };
        let again = || fs::openat(&root, c".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        if let Ok(stat) = stat_fd(&root)
            && let Ok(volume) = self.files.volumes.of(&stat, again)
        {
            self.files.inodes.replace_root(identity(volume.index, &stat));
        }
    }

    fn invalidate_name(&self, parent: InodeId, name: &[u8]) {
        // The readers notice if the connection is gone.
        let _ = self.connection.notify(&Notification::Entry { parent: parent.0, name });
    }

    /// Invalidates all names, also those whose look-ups saw the previous sources and are answered only now: the kernel
    /// compares the epoch in which a look-up began. Without it, such an answer would hold for the whole timeout. If
    /// there is a mount on top of a thruway mount, the kernel would remove that mount together with its name.
    fn invalidate_all_names(&self) {
        if !mounts::any_on_top_of_ours() {
            let _ = self.connection.notify(&Notification::Epoch);
        }
    }

    fn invalidate_folder(&self, id: InodeId) {
        let _ = self.connection.notify(&Notification::Data { inode: id.0 });
    }
}

/// Returns the folder with this path below a root, if the kernel knows the folder.
pub(super) fn known_folder(files: &Files, root: &OwnedFd, below: &Path) -> Option<InodeId> {
    if below == Path::new("") {
        return Some(InodeId::ROOT);
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = fs::openat(root, below, flags, Mode::empty()).ok()?;
    files.known(&stat_fd(folder).ok()?)
}

fn place_of(root: &Result<Root, Absence>) -> Option<Place> {
    root.as_ref().ok().and_then(|root| root.place)
}

/// Returns the previous roots, but with the present reasons of those that are absent.
fn keeping_reasons(
    roots: &[Result<Root, Absence>],
    found: &[Result<Root, Absence>],
) -> Vec<Result<Root, Absence>> {
    let newer = |(branch, new): (usize, &Result<Root, Absence>)| match (roots.get(branch), new) {
        (Some(old @ Ok(_)), _) => old.clone(),
        _ => new.clone(),
    };
    found.iter().enumerate().map(newer).collect()
}

/// Adds all names in a root.
fn add_names(root: &Result<Root, Absence>, names: &mut HashSet<Vec<u8>>) {
    let Ok(root) = root else { return };
    // A root that cannot be read has no names.
    let _ = each_entry(&root.fd, 0, RAW_BYTES, |entry| {
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            names.insert(name.to_vec());
        }
        Ok(true)
    });
}

/// Returns the mount points at which a file system was mounted, unmounted, or mounted with other options.
fn changed_points(before: &[TableEntry], now: &[TableEntry]) -> HashSet<PathBuf> {
    let only_in = |one: &[TableEntry], other: &[TableEntry]| {
        let differs = |entry: &&TableEntry| !other.contains(entry);
        one.iter().filter(differs).map(|entry| entry.target.clone()).collect::<Vec<_>>()
    };
    only_in(before, now).into_iter().chain(only_in(now, before)).collect()
}
