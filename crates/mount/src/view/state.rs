//! The view, and the parts that it consists of.

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLockReadGuard};

use rustix::fs::Statx;
use rustix::io::Errno;
use rustix::process::{Pid, getppid};
use thruway_fuse::{ConnectionOptions, Notification};

use super::access::AccessControl;
use super::backing_files::BackingFiles;
use super::connection::Connection;
use super::error_counts::ErrorCounts;
use super::files::Files;
use super::folder::BranchDir;
use super::folders::Folders;
use super::invalidation::Invalidation;
use super::links::LinkFollower;
use super::merged_sources::MergedSources;
use super::mount_changes::{FollowingView, MountChanges, SourcePlaces, known_folder};
use super::moves::Moves;
use super::policy_check::PolicyEnforcer;
use super::recent_listing::RecentListing;
use super::stat::{identity, is_folder};
use super::timeouts::{CacheTimeouts, EPOCH_MINOR, Timeouts};
use super::walks::Walks;
use super::watches::FolderWatches;
use crate::branches::{Branches, DroppedNames};
use crate::inodes::{InodeId, Inodes};
use crate::locks::Locks;
use crate::memory::Memory;
use crate::owners::Owners;
use crate::plan::{Changes, CreatePolicy};
use crate::policy::Policy;
use crate::source_table::SourceTable;
use crate::upper::{UPPER, Upper};
use crate::volumes::Volumes;
use crate::watch::{self, Change, Watch};

/// The options of a view.
#[derive(Debug, Clone)]
pub(crate) struct Behaviour {
    /// Whether the sources never change, so that opens are not requests and timeouts are long.
    pub(crate) frozen: bool,
    /// Whether extended attributes are supported.
    pub(crate) xattr: bool,
    /// Whether POSIX locks are set on the backing files.
    pub(crate) shared_locks: bool,
    pub(crate) timeouts: Timeouts,
    /// How changes behind the mount are noticed.
    pub(crate) changes: Changes,
    /// The source in which new files are created.
    pub(crate) create: CreatePolicy,
    /// Files are only created in a source while this number of bytes is free there.
    pub(crate) free_min_bytes: u64,
    /// Whether a hard link or a rename makes the folder that the file's source lacks.
    pub(crate) make_folders: bool,
    /// Whether a file moves to another source when its own is full.
    pub(crate) moves_when_full: bool,
    /// Whether there are several sources, or there may be later.
    pub(crate) is_merged: bool,
    /// How owners and modes are shown and written; `None` if as they are.
    pub(crate) owners: Option<Owners>,
    /// If links to regular files are followed: the folder where the view is mounted.
    pub(crate) follows_links_at: Option<PathBuf>,
    /// The upper source, if it takes all changes.
    pub(crate) upper: Option<Arc<Upper>>,
}

/// The state from which the requests of a mount are served.
#[derive(Debug)]
pub(crate) struct View {
    pub(super) memory: Arc<Memory>,
    pub(super) behaviour: Behaviour,
    pub(super) connection: Arc<Connection>,
    pub(super) files: Arc<Files>,
    pub(super) folders: Arc<Folders>,
    pub(super) backing: BackingFiles,
    pub(super) timeouts: CacheTimeouts,
    pub(super) invalidation: Invalidation,
    pub(super) mount_changes: MountChanges,
    pub(super) access: AccessControl,
    pub(super) locks: Locks,
    pub(super) recent_listing: RecentListing,
    pub(super) moves: Moves,
    /// Follows symbolic links, if the view shows the files to which they lead.
    pub(super) links: Option<LinkFollower>,
    /// The process that started this one.
    pub(super) supervisor: Option<Pid>,
    /// The errors of the sources.
    pub(super) source_errors: ErrorCounts,
}

impl View {
    /// Creates a view of `sources`. `held` contains the descriptors of sources that are not followed, and `device` is
    /// the connection.
    pub(crate) fn new(
        memory: Arc<Memory>,
        (sources, held): (SourcePlaces, Vec<OwnedFd>),
        device: OwnedFd,
        negotiated: ConnectionOptions,
        mut behaviour: Behaviour,
        enforcer: Option<PolicyEnforcer>,
        descriptors_max: usize,
    ) -> Result<Self, Errno> {
        let (mount_changes, roots, volumes) = MountChanges::open(sources, held);
        let is_merged = behaviour.is_merged;
        let inodes = Inodes::new(Arc::clone(&memory));
        let (needs_names, sources) =
            (is_merged || enforcer.is_some(), (Arc::clone(&roots), volumes));
        let options = (needs_names, behaviour.upper.is_some());
        let files = Arc::new(Files::new(inodes, sources, options, descriptors_max)?);
        let (inodes, volumes) = (&files.inodes, &files.volumes);
        let watch = choose_changes(&mut behaviour, is_merged);
        let watches = FolderWatches::new(watch, inodes, volumes, &roots);
        let merged_sources = is_merged.then(|| {
            let branches = Branches::new(roots, descriptors_max / 4);
            MergedSources::new(branches, volumes, &memory, &behaviour)
        });
        let is_frozen = behaviour.frozen;
        let folders =
            Arc::new(Folders { files: Arc::clone(&files), watches, merged_sources, is_frozen });
        let (connection, deferred) = (Arc::new(Connection { device, negotiated }), Arc::default());
        let backing =
            BackingFiles::new(Arc::clone(&connection), Arc::clone(&memory), Arc::clone(inodes));
        let follower = |mounted_at| LinkFollower { files: Arc::clone(&files), mounted_at };
        Ok(Self {
            links: behaviour.follows_links_at.clone().map(follower),
            timeouts: CacheTimeouts {
                inodes: Arc::clone(inodes),
                deferred: Arc::clone(&deferred),
                longest: behaviour.timeouts,
                changes: behaviour.changes,
                is_frozen,
                cannot_invalidate_hidden: enforcer.is_some() && negotiated.minor < EPOCH_MINOR,
            },
            invalidation: Invalidation {
                connection: Arc::clone(&connection),
                memory: Arc::clone(&memory),
                files: Arc::clone(&files),
                folders: Arc::clone(&folders),
                deferred,
                changes: behaviour.changes,
                passes_through: backing.pass_through(),
            },
            access: AccessControl {
                memory: Arc::clone(&memory),
                files: Arc::clone(&files),
                folders: Arc::clone(&folders),
                enforcer,
                walks: Walks::default(),
            },
            memory,
            behaviour,
            connection,
            mount_changes,
            files,
            folders,
            backing,
            locks: Locks::default(),
            recent_listing: RecentListing::default(),
            moves: Moves::default(),
            supervisor: getppid(),
            source_errors: ErrorCounts::default(),
        })
    }

    /// Whether the kernel moves the data of files.
    pub(crate) fn passes_through(&self) -> bool {
        self.backing.pass_through()
    }

    /// Returns how changes behind the mount are noticed.
    pub(crate) fn changes(&self) -> Changes {
        self.behaviour.changes
    }

    /// Returns the watch on the sources, for the threads that report changes.
    pub(crate) fn watch(&self) -> Option<&Watch> {
        self.folders.watches.watch()
    }

    /// Invalidates the caches that a change by another program concerns.
    pub(crate) fn apply(&self, change: Change<'_>) {
        self.invalidation.apply(change);
    }

    /// Makes these the sources. Open files stay open.
    pub(crate) fn set_sources(&self, table: SourceTable) {
        let (files, folders, connection) = (&*self.files, &*self.folders, &*self.connection);
        self.mount_changes.set_sources(&FollowingView { files, folders, connection }, table);
        self.backing.drop_all_idle();
    }

    /// Follows file systems that are mounted and unmounted, on the calling thread.
    pub(crate) fn follow_mounts(&self) -> Result<(), Errno> {
        let (files, folders, connection) = (&*self.files, &*self.folders, &*self.connection);
        self.mount_changes.run(&FollowingView { files, folders, connection }, || {
            self.backing.drop_all_idle();
        })
    }

    /// Runs deferred invalidations on the calling thread, and never returns.
    pub(crate) fn run_deferred(&self) {
        self.invalidation.run_deferred();
    }

    /// Makes the kernel resend the requests that the dead worker has read, and invalidates everything else, since
    /// changes were not watched meanwhile. Kernels before 6.16 lack that notification and rely on the timeouts.
    pub(crate) fn take_over(&self) -> Result<(), Errno> {
        self.connection.notify(&Notification::Resend)?;
        let _ = self.invalidation.invalidate_names(DroppedNames::Outdated);
        self.invalidation.invalidate_all_open();
        Ok(())
    }

    /// Returns the locks, for the thread that tries waiting ones.
    pub(crate) fn locks(&self) -> &Locks {
        &self.locks
    }

    /// Replaces the policy, if there is one. Open files stay open.
    pub(crate) fn set_policy(&self, policy: Policy) {
        if self.access.is_enforced() {
            self.access.set_policy(policy);
            // The new policy may hide other names. Older kernels drop names after a short timeout.
            let _ = self.invalidation.invalidate_names(DroppedNames::Current);
        }
    }

    /// Returns the folder with this path below the root, if the kernel knows the folder.
    pub(super) fn known_folder(&self, path: &Path) -> Option<InodeId> {
        let roots = self.files.roots.present();
        roots.iter().find_map(|(_, root)| known_folder(&self.files, root, path))
    }

    /// Keeps a file from moving to another source while it is changed; see [`Moves::keep_file`]. Nothing moves in a
    /// view of one source, nor with an upper source.
    pub(super) fn keep_file(&self, id: InodeId) -> Result<Option<RwLockReadGuard<'_, ()>>, Errno> {
        match self.folders.branches() {
            Some(_) if self.folders.upper().is_none() => self.moves.keep_file(id).map(Some),
            _ => Ok(None),
        }
    }

    /// Keeps files from moving to another source until the guard is dropped. Nothing moves in a view of one source.
    pub(super) fn keep_names(&self) -> Option<RwLockReadGuard<'_, ()>> {
        self.folders.branches().map(|_| self.moves.share_names())
    }

    /// Whether each name of the file is an inode of its own, since a copy to the upper source concerns one name.
    pub(super) fn is_separate_link(&self, branch: u16, stat: &Statx) -> bool {
        self.behaviour.upper.is_some() && branch != UPPER && stat.stx_nlink > 1 && !is_folder(stat)
    }

    /// Returns the inode of a name in a source, if the kernel knows it.
    pub(super) fn known_at(
        &self,
        folder: InodeId,
        (dir, name): (&BranchDir, &CStr),
        stat: &Statx,
    ) -> Option<InodeId> {
        if !self.is_separate_link(dir.branch, stat) {
            return self.files.known(stat);
        }
        let volume = self.files.volumes.known(stat)?;
        let identity = identity(volume.index, stat).with_name(folder, name.to_bytes());
        self.files.inodes.find_known(&identity)
    }

    /// Closes descriptors that were not used for a while. Call this function every few seconds.
    pub(crate) fn age(&self) {
        self.files.age();
        if let Some(branches) = self.folders.branches() {
            branches.age();
        }
        self.backing.drop_all_idle();
    }
}

impl MergedSources {
    fn new(
        branches: Branches,
        volumes: &Arc<Volumes>,
        memory: &Arc<Memory>,
        behaviour: &Behaviour,
    ) -> Self {
        let (volumes, memory) = (Arc::clone(volumes), Arc::clone(memory));
        Self { branches, volumes, memory, upper: behaviour.upper.clone() }
    }
}

/// Starts the watch if the options ask for reported changes and the system supports them; otherwise changes the
/// options. With [`Changes::Asked`], the index of merged folders still needs a watch.
fn choose_changes(behaviour: &mut Behaviour, is_merged: bool) -> Option<Watch> {
    if behaviour.frozen || behaviour.changes == Changes::Ignored {
        return None;
    }
    let reports_changes = behaviour.changes == Changes::Told && watch::may_preempt().is_ok();
    let watch = if reports_changes || is_merged { Watch::new().ok() } else { None };
    if !reports_changes || watch.is_none() {
        behaviour.changes = Changes::Asked;
    }
    watch
}
