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

use rustix::fs::{self, Mode, OFlags, StatxAttributes};
use rustix::io::Errno;
use thruway_fuse::Notification;

use super::connection::Connection;
use super::entries::each_entry;
use super::files::Files;
use super::folders::Folders;
use super::stat::{identity, stat_fd};
use crate::branches::Branches;
use crate::inodes::{InodeId, lock};
use crate::mounts::{MountTable, TableChanges, TableEntry};
use crate::roots::{Root, Roots};
use crate::sources::{self, Absence, Place};
use crate::volumes::Volumes;

/// The size of the buffer for the names of a root.
const RAW_BYTES: usize = 64 * 1024;

/// The sources of a mount, as a worker receives them.
#[derive(Debug)]
pub(crate) struct SourcePlaces {
    pub(crate) paths: Vec<PathBuf>,
    /// The place of each source when the mount was made, or `None` if the source stays as it was then.
    pub(crate) places: Vec<Option<Place>>,
}

impl SourcePlaces {
    fn is_followed(&self) -> bool {
        self.places.iter().any(Option::is_some)
    }

    /// Returns the present roots. `held` contains the previous ones: sources that are not followed stay, and so does a
    /// folder that was only renamed.
    fn find(
        &self,
        held: &[Result<Root, Absence>],
        table: &MountTable,
        volumes: &Volumes,
    ) -> Vec<Result<Root, Absence>> {
        let mut all: Vec<Result<Root, Absence>> = Vec::new();
        for (branch, (path, place)) in self.paths.iter().zip(&self.places).enumerate() {
            let before = held.get(branch);
            let root = match place {
                None => before.cloned().unwrap_or(Err(Absence::Failed(Errno::STALE))),
                Some(place) => reserving(place, volumes, path).and_then(|(fd, now)| match before {
                    Some(Ok(root)) if root.is_kept(&now) => Ok(root.clone()),
                    _ => Root::found(fd, now, table, volumes).map_err(Absence::Failed),
                }),
            };
            let is_again = |root: &Root| {
                let earlier = all.iter().flatten().filter_map(|other| other.place);
                root.place.is_some_and(|now| earlier.into_iter().any(|it| it.is_same_folder(&now)))
            };
            let root =
                if root.as_ref().is_ok_and(is_again) { Err(Absence::Duplicate) } else { root };
            all.push(root);
        }
        all
    }
}

impl Root {
    /// Creates the root of a source that is not followed.
    fn held(fd: OwnedFd) -> Self {
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
fn reserving(place: &Place, volumes: &Volumes, path: &Path) -> Result<(OwnedFd, Place), Absence> {
    place.find(path).inspect_err(|_| volumes.reserve(place.device()))
}

/// Whether the folder is a whole file system, at its mount point.
fn is_whole(fd: &OwnedFd, table: &MountTable) -> bool {
    let is_top =
        stat_fd(fd).is_ok_and(|stat| stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT));
    let entry = sources::mount_number(fd).ok().and_then(|number| table.get(number));
    is_top && entry.is_some_and(|entry| entry.is_whole)
}

/// Follows the mounts of a view.
#[derive(Debug)]
pub(super) struct MountChanges {
    sources: SourcePlaces,
    /// The paths of the sources without symbolic links.
    below: Vec<PathBuf>,
    /// The mounts that concerned the sources at the last check.
    last: Mutex<Vec<TableEntry>>,
}

impl MountChanges {
    /// Opens the sources. `held` contains the descriptors of sources that are not followed.
    pub(super) fn open(
        sources: SourcePlaces,
        held: Vec<OwnedFd>,
    ) -> (Self, Arc<Roots>, Arc<Volumes>) {
        let volumes = Arc::new(Volumes::new(sources.is_followed()));
        let table = MountTable::read().unwrap_or_default();
        let mut held = held.into_iter();
        let mut held_root = |place: &Option<Place>| match place {
            Some(_) => Err(Absence::Unmounted),
            None => held.next().map(Root::held).ok_or(Absence::Failed(Errno::STALE)),
        };
        let held: Vec<_> = sources.places.iter().map(&mut held_root).collect();
        let roots = sources.find(&held, &table, &volumes);
        let path = |(path, root): (&PathBuf, &Result<Root, Absence>)| {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let open = || fs::openat(fs::CWD, path, flags, Mode::empty());
            let found = if root.is_ok() {
                open().and_then(|fd| sources::path_of(&fd))
            } else {
                Err(Errno::NOENT)
            };
            found.unwrap_or_else(|_| path.clone())
        };
        let below = sources.paths.iter().zip(&roots).map(path).collect();
        let changes = Self { sources, below, last: Mutex::default() };
        (changes, Arc::new(Roots::new(roots)), volumes)
    }

    /// Follows mounts on the calling thread; returns only if no source is followed, or on an error. `close_idle` closes
    /// backing files that are not in use.
    pub(super) fn run(&self, view: &FollowingView<'_>, close_idle: impl Fn()) -> Result<(), Errno> {
        if !self.sources.is_followed() {
            return Ok(());
        }
        let changes = TableChanges::new().map_err(|_| Errno::NOENT)?;
        loop {
            // Mounts may already have changed since the sources were opened.
            if let Ok(table) = MountTable::read() {
                self.apply(view, &table);
                close_idle();
            }
            changes.wait()?;
        }
    }

    fn apply(&self, view: &FollowingView<'_>, table: &MountTable) {
        let now = self.concerning(view, table);
        let before = std::mem::replace(&mut *lock(&self.last), now.clone());
        let roots = view.files.roots.all();
        let found = self.sources.find(&roots, table, &view.files.volumes);
        let moved: Vec<_> =
            roots.iter().zip(&found).filter(|(old, new)| place_of(old) != place_of(new)).collect();
        if moved.is_empty() && now == before {
            view.files.roots.replace(keeping_reasons(&roots, &found));
            return;
        }
        let mut names = HashSet::new();
        for (old, new) in moved.iter() {
            [old, new].iter().for_each(|root| add_names(root, &mut names));
        }
        view.files.roots.replace(found.clone());
        let points = changed_points(&before, &now);
        // The names of a file system are looked up again before the file system is released, so that the names that it
        // hid appear without an error.
        points.iter().for_each(|point| self.invalidate_point(view, point));
        view.files.volumes.follow(table);
        if !moved.is_empty() {
            view.note_new_root();
        }
        view.files.close_all();
        let dropped = view.folders.branches().map(Branches::drop_folders).unwrap_or_default();
        points.iter().for_each(|point| self.invalidate_point(view, point));
        names.iter().for_each(|name| view.invalidate_name(InodeId::ROOT, name));
        dropped.iter().for_each(|id| view.invalidate_folder(*id));
        if !moved.is_empty() {
            view.invalidate_folder(InodeId::ROOT);
        }
    }

    /// Returns the mounts that concern the sources: mounts at the sources and below, mounts that lead to them, and
    /// mounts on top of the latter.
    fn concerning(&self, view: &FollowingView<'_>, table: &MountTable) -> Vec<TableEntry> {
        let own = view.files.volumes.mounts();
        let concerns = |entry: &&TableEntry| {
            own.contains(&entry.id)
                || own.contains(&entry.parent)
                || self.below.iter().any(|source| entry.target.starts_with(source))
        };
        table.entries().iter().filter(concerns).cloned().collect()
    }

    /// Invalidates the name that this mount point has in the view.
    fn invalidate_point(&self, view: &FollowingView<'_>, point: &Path) {
        for source in &self.below {
            let Ok(below) = point.strip_prefix(source) else { continue };
            let (Some(above), Some(name)) = (below.parent(), below.file_name()) else { continue };
            for (_, root) in view.files.roots.present() {
                if let Some(id) = view.known_folder(&root, above) {
                    view.invalidate_name(id, name.as_bytes());
                    view.invalidate_folder(id);
                }
            }
        }
    }
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

    fn known_folder(&self, root: &OwnedFd, below: &Path) -> Option<InodeId> {
        if below == Path::new("") {
            return Some(InodeId::ROOT);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = fs::openat(root, below, flags, Mode::empty()).ok()?;
        self.files.known(&stat_fd(folder).ok()?)
    }

    fn invalidate_name(&self, parent: InodeId, name: &[u8]) {
        // The readers notice if the connection is gone.
        let _ = self.connection.notify(&Notification::Entry { parent: parent.0, name });
    }

    fn invalidate_folder(&self, id: InodeId) {
        let _ = self.connection.notify(&Notification::Data { inode: id.0 });
    }
}

fn place_of(root: &Result<Root, Absence>) -> Option<Place> {
    root.as_ref().ok().and_then(|root| root.place)
}

/// Returns the previous roots, but with the present reasons of those that are absent.
fn keeping_reasons(
    roots: &[Result<Root, Absence>],
    found: &[Result<Root, Absence>],
) -> Vec<Result<Root, Absence>> {
    let newer = |(old, new): (&Result<Root, Absence>, &Result<Root, Absence>)| match (old, new) {
        (Err(_), Err(reason)) => Err(*reason),
        _ => old.clone(),
    };
    roots.iter().zip(found).map(newer).collect()
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
