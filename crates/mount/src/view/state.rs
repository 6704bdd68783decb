//! The view, and the parts that it consists of.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::process::{Pid, getppid};
use thruway_fuse::{Negotiated, Notification};

use super::access::AccessControl;
use super::backing_files::BackingFiles;
use super::connection::Connection;
use super::deferred::Deferred;
use super::error_counts::ErrorCounts;
use super::files::Files;
use super::folders::Folders;
use super::invalidation::Invalidation;
use super::merging::Merging;
use super::mount_changes::{FollowingView, MountChanges, SourcePlaces};
use super::policy_check::PolicyEnforcer;
use super::recent_listing::RecentListing;
use super::timeouts::{CacheTimeouts, EPOCH_MINOR, Timeouts};
use super::walks::Walks;
use super::watches::FolderWatches;
use crate::branches::Branches;
use crate::inodes::Inodes;
use crate::locks::Locks;
use crate::memory::Memory;
use crate::plan::{Changes, CreatePolicy};
use crate::policy::Policy;
use crate::watch::{self, Change, Watch};

/// The options of a view.
#[derive(Debug, Clone)]
pub(crate) struct Behaviour {
    /// Nothing changes: opens are no requests, and timeouts are long.
    pub(crate) frozen: bool,
    /// Extended attributes are passed on.
    pub(crate) xattr: bool,
    /// POSIX locks are set on the backing files.
    pub(crate) shared_locks: bool,
    pub(crate) timeouts: Timeouts,
    /// How changes behind the mount are noticed.
    pub(crate) changes: Changes,
    /// The source in which new files are made.
    pub(crate) create: CreatePolicy,
}

/// What the requests of one mount are served from.
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
    /// The process that started this one.
    pub(super) supervisor: Option<Pid>,
    /// Errors of the sources.
    pub(super) source_errors: ErrorCounts,
}

impl View {
    /// A view of `sources`, with the descriptors of those that are `held`; `device` is the connection.
    pub(crate) fn new(
        memory: Arc<Memory>,
        (sources, held): (SourcePlaces, Vec<OwnedFd>),
        device: OwnedFd,
        negotiated: Negotiated,
        mut behaviour: Behaviour,
        enforcer: Option<PolicyEnforcer>,
        descriptors_max: usize,
    ) -> Result<Self, Errno> {
        let (mount_changes, roots, volumes) = MountChanges::open(sources, held);
        let is_merged = roots.len() > 1;
        let (inodes, needs_names) =
            (Inodes::new(Arc::clone(&memory)), is_merged || enforcer.is_some());
        let files = Arc::new(Files::new(
            inodes,
            (Arc::clone(&roots), volumes),
            needs_names,
            descriptors_max,
        )?);
        let (inodes, volumes) = (&files.inodes, &files.volumes);
        let watch = choose_changes(&mut behaviour, is_merged);
        let watches = FolderWatches::new(watch, inodes, volumes, &roots);
        let merging = is_merged.then(|| {
            let branches = Branches::new(roots, behaviour.create, descriptors_max / 4);
            Merging { branches, volumes: Arc::clone(volumes) }
        });
        let is_frozen = behaviour.frozen;
        let folders = Arc::new(Folders { files: Arc::clone(&files), watches, merging, is_frozen });
        let connection = Arc::new(Connection { device, negotiated });
        let backing =
            BackingFiles::new(Arc::clone(&connection), Arc::clone(&memory), Arc::clone(inodes));
        let deferred = Arc::<Deferred>::default();
        Ok(Self {
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
            supervisor: getppid(),
            source_errors: ErrorCounts::default(),
        })
    }

    /// Whether the kernel moves the data of files.
    pub(crate) fn passes_through(&self) -> bool {
        self.backing.pass_through()
    }

    /// How changes behind the mount are noticed.
    pub(crate) fn changes(&self) -> Changes {
        self.behaviour.changes
    }

    /// The watch on the sources, for the threads that report changes.
    pub(crate) fn watch(&self) -> Option<&Watch> {
        self.folders.watches.watch()
    }

    /// Invalidates what another program has changed.
    pub(crate) fn apply(&self, change: Change<'_>) {
        self.invalidation.apply(change);
    }

    /// Follows file systems that are mounted and unmounted, for ever: for a thread of its own.
    pub(crate) fn follow_mounts(&self) -> Result<(), Errno> {
        let (files, folders, connection) = (&*self.files, &*self.folders, &*self.connection);
        self.mount_changes.run(&FollowingView { files, folders, connection }, || {
            self.backing.drop_all_idle();
        })
    }

    /// Does what is deferred, for ever: for a thread of its own.
    pub(crate) fn run_deferred(&self) {
        self.invalidation.run_deferred();
    }

    /// Makes the kernel send again the requests that the dead worker has read. Everything else is invalidated, as there
    /// was no watch meanwhile. Kernels before 6.16 rely on the timeouts.
    pub(crate) fn take_over(&self) -> Result<(), Errno> {
        self.connection.notify(&Notification::Resend)?;
        let _ = self.invalidation.invalidate_everything();
        self.invalidation.invalidate_all_open();
        Ok(())
    }

    /// The locks, for the thread that tries waiting ones.
    pub(crate) fn locks(&self) -> &Locks {
        &self.locks
    }

    /// Replaces the policy, if there is one. Files that are open stay open.
    pub(crate) fn set_policy(&self, policy: Policy) {
        if self.access.is_enforced() {
            self.access.set_policy(policy);
            // Other names may be hidden now. Older kernels drop names soon by themselves.
            let _ = self.invalidation.invalidate_everything();
        }
    }

    /// Closes descriptors that are unused for a while: to be called every few seconds.
    pub(crate) fn age(&self) {
        self.files.age();
        if let Some(branches) = self.folders.branches() {
            branches.age();
        }
        self.backing.drop_all_idle();
    }
}

/// Starts the watch if changes are to be reported and can be; else changes the options. With [`Changes::Asked`], the
/// index of merged folders still needs a watch.
fn choose_changes(behaviour: &mut Behaviour, is_merged: bool) -> Option<Watch> {
    if behaviour.frozen || behaviour.changes == Changes::Ignored {
        return None;
    }
    let is_told = behaviour.changes == Changes::Told && watch::may_preempt().is_ok();
    let watch = if is_told || is_merged { Watch::new().ok() } else { None };
    if !is_told || watch.is_none() {
        behaviour.changes = Changes::Asked;
    }
    watch
}
