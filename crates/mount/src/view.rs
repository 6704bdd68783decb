//! The view that is served: what each request of the kernel does.
//!
//! A file a group of operations: [`lookup`] finds inodes, [`attributes`] reads and changes them,
//! [`creation`] and [`names`] make, move and remove names, [`listing`] reads folders, [`open`] decides
//! how a file's data moves, [`data`] moves it where the kernel cannot, [`extended`] is extended
//! attributes, [`freshness`] says what the kernel may keep and tells it what others change. [`judging`]
//! asks the policy, and [`moves`] knows by which names.

mod attributes;
mod creation;
mod data;
mod deferred;
mod extended;
mod folder;
mod freshness;
mod judging;
mod listing;
mod locking;
mod lookup;
mod merging;
mod moves;
mod names;
mod open;
mod report;
mod space;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, getppid};
use thruway_fuse::wire::feature;
use thruway_fuse::{Agreement, Answer, Notification, Operation, Request};

use crate::actor::Actor;
use crate::branches::Branches;
use crate::descriptors::Descriptors;
use crate::device;
use crate::inodes::{InodeId, Inodes, lock};
use crate::locks::Locks;
use crate::memory::Memory;
use crate::names::Names;
use crate::pins::Pins;
use crate::plan::{Changes, CreatePolicy};
use crate::reply::Replier;
use crate::volumes::Volumes;
use crate::watch::Watch;

pub(crate) use judging::Judge;

/// What is answered, and whether at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The answer goes back.
    Answered,
    /// The kernel expects none.
    Silent,
    /// The answer comes later, from elsewhere.
    Later,
}

/// How long the kernel may keep what it was told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeouts {
    pub(crate) entry: Duration,
    pub(crate) attributes: Duration,
}

/// How a view behaves.
#[derive(Debug, Clone)]
pub(crate) struct Behaviour {
    /// Nothing changes: no request for an open, and long timeouts.
    pub(crate) frozen: bool,
    /// Extended attributes are passed on.
    pub(crate) xattr: bool,
    /// POSIX locks are set on the backing files.
    pub(crate) shared_locks: bool,
    pub(crate) timeouts: Timeouts,
    /// How changes behind the mount are noticed.
    pub(crate) changes: Changes,
    /// Which source gets what is made.
    pub(crate) create: CreatePolicy,
}

#[derive(Debug)]
pub(crate) struct View {
    memory: Arc<Memory>,
    inodes: Inodes,
    volumes: Volumes,
    /// Where inodes are: open with `O_PATH`.
    places: Descriptors,
    pins: Pins,
    /// Where inodes are by name, if that is needed.
    names: Option<Names>,
    /// Open for reading, where the data goes through the daemon.
    readers: Descriptors,
    /// Open for writing, where the data goes through the daemon.
    writers: Descriptors,
    root: Arc<OwnedFd>,
    /// All sources, if there are several.
    branches: Option<Branches>,
    /// The connection, for backing files.
    device: OwnedFd,
    agreement: Agreement,
    /// The kernel moves the data of files.
    passes_through: bool,
    behaviour: Behaviour,
    idle: open::Idle,
    listed: listing::Listed,
    deferred: deferred::Deferred,
    refusals: Refusals,
    locks: Locks,
    /// Tells us what others change, if the system lets it.
    watch: Option<Watch>,
    /// The process that started this one.
    supervisor: Option<Pid>,
    /// Requests that a source could not answer.
    source_errors: Refusals,
    /// Knows who may do what, if not everyone may do everything.
    judge: Option<Judge>,
    moves: moves::Moves,
}

/// Errors of a source that fails: of its disk, its device, or whoever serves it.
const FAILING: [Errno; 5] =
    [Errno::IO, Errno::UCLEAN, Errno::NOTCONN, Errno::CONNABORTED, Errno::SHUTDOWN];

/// Why the kernel would not take backing files, or a source not answer, and how often.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    counts: Mutex<BTreeMap<i32, u64>>,
}

impl Refusals {
    fn note(&self, errno: Errno) {
        *lock(&self.counts).entry(errno.raw_os_error()).or_default() += 1;
    }
}

impl View {
    /// A view of the folders `roots`, of which there is at least one, served over `device`.
    pub(crate) fn new(
        memory: Arc<Memory>,
        roots: Vec<OwnedFd>,
        device: OwnedFd,
        agreement: Agreement,
        behaviour: Behaviour,
        judge: Option<Judge>,
        descriptors_max: usize,
    ) -> Result<Self, Errno> {
        let roots: Vec<_> = roots.into_iter().map(Arc::new).collect();
        let root = Arc::clone(roots.first().ok_or(Errno::INVAL)?);
        let create = behaviour.create;
        let branches = (roots.len() > 1).then(|| Branches::new(roots, create, descriptors_max / 4));
        let mut view = Self {
            inodes: Inodes::new(Arc::clone(&memory)),
            memory,
            volumes: Volumes::default(),
            places: Descriptors::new(descriptors_max / 4),
            pins: Pins::default(),
            names: None,
            readers: Descriptors::new(descriptors_max / 8),
            writers: Descriptors::new(descriptors_max / 8),
            root,
            branches,
            device,
            agreement,
            passes_through: agreement.has(feature::PASSTHROUGH),
            behaviour,
            idle: open::Idle::default(),
            listed: listing::Listed::default(),
            deferred: deferred::Deferred::default(),
            refusals: Refusals::default(),
            locks: Locks::default(),
            watch: None,
            supervisor: getppid(),
            source_errors: Refusals::default(),
            judge,
            moves: moves::Moves::default(),
        };
        let volume = view.intern_root()?;
        let needs_names = !volume.has_handles || view.branches.is_some() || view.judge.is_some();
        view.names = needs_names.then(Names::default);
        view.choose_changes();
        if view.passes_through
            && let Err(errno) = view.may_pass_through()
        {
            view.passes_through = false;
            view.refusals.note(errno);
        }
        Ok(view)
    }

    /// Whether the kernel moves the data of files.
    pub(crate) fn passes_through(&self) -> bool {
        self.passes_through
    }

    /// Closes what has not been used for a while: call it every few seconds.
    pub(crate) fn age(&self) {
        self.places.age();
        if let Some(branches) = &self.branches {
            branches.age();
        }
        self.readers.age();
        self.writers.age();
        self.drop_all_idle();
    }

    /// Tells the kernel something. What it does not know needs no telling.
    pub(crate) fn notify(&self, notification: &Notification<'_>) -> Result<(), Errno> {
        match device::send(&self.device, &notification.to_bytes()) {
            Err(Errno::NOENT) => Ok(()),
            sent => sent,
        }
    }

    /// Whether the answer may take as long as a disk or another machine takes.
    pub(crate) fn is_slow(&self, request: &Request<'_>) -> bool {
        let is_short = matches!(
            request.operation,
            Operation::Forget { .. } | Operation::BatchForget(_) | Operation::Interrupt(_)
        );
        let waits_for_disk = matches!(
            request.operation,
            Operation::FSync(_)
                | Operation::FSyncDir(_)
                | Operation::SyncFs
                | Operation::FAllocate(_)
        );
        waits_for_disk
            || self.copies_much(request)
            || self.may_scan(&request.operation)
            || (!is_short && self.volumes.any_remote())
    }

    /// What others change, for the thread that tells the kernel.
    pub(crate) fn watch(&self) -> Option<&Watch> {
        self.watch.as_ref()
    }

    /// The locks, for the thread that tries again for those who wait.
    pub(crate) fn locks(&self) -> &Locks {
        &self.locks
    }

    /// Answers one request. An answer that comes later goes to `replier`.
    pub(crate) fn serve(
        &self,
        actor: &mut Actor,
        replier: &Arc<dyn Replier>,
        request: &Request<'_>,
        answer: &mut Answer,
    ) -> Outcome {
        answer.clear();
        let outcome = self.serve_now(actor, replier, request, answer);
        outcome.unwrap_or_else(|errno| {
            if FAILING.contains(&errno) {
                self.source_errors.note(errno);
            }
            answer.fail(errno.raw_os_error());
            Outcome::Answered
        })
    }

    fn serve_now(
        &self,
        actor: &mut Actor,
        replier: &Arc<dyn Replier>,
        request: &Request<'_>,
        answer: &mut Answer,
    ) -> Result<Outcome, Errno> {
        match request.operation {
            Operation::Forget { lookups } => {
                self.forget(InodeId(request.inode), lookups);
                Ok(Outcome::Silent)
            }
            Operation::BatchForget(forgets) => {
                forgets.for_each(|one| self.forget(InodeId(one.inode), one.lookups));
                Ok(Outcome::Silent)
            }
            Operation::Interrupt(with) => {
                self.locks.interrupt(with.unique);
                Ok(Outcome::Silent)
            }
            Operation::SetLock { with, wait } => self.set_lock(request, &with, wait, replier),
            _ => self.answer(actor, request, answer).map(|()| Outcome::Answered),
        }
    }

    fn answer(
        &self,
        actor: &mut Actor,
        request: &Request<'_>,
        answer: &mut Answer,
    ) -> Result<(), Errno> {
        if self.behaviour.frozen && request.operation.is_change() {
            // The kernel has refused it, unless root has made the mount writable behind our back.
            return Err(Errno::ROFS);
        }
        self.catch_up();
        let _held = self.hold_names(&request.operation);
        self.judge_request(request)?;
        let inode = InodeId(request.inode);
        match request.operation {
            Operation::Lookup { name } => self.lookup(&request.caller, inode, name, answer),
            Operation::GetAttr(_) => self.get_attributes(inode, answer),
            Operation::Statx(_) => self.get_extended_attributes(inode, answer),
            Operation::SetAttr(with) => self.set_attributes(actor, request, &with, answer),
            Operation::ReadLink => self.read_link(inode, answer),
            Operation::StatFs => self.space(inode, answer),
            Operation::OpenDir(_) => self.open_folder(answer),
            Operation::ReadDir(with) => self.list(inode, &with, answer),
            Operation::ReadDirPlus(with) => self.list_with_attributes(inode, &with, answer),
            Operation::FSyncDir(_) => self.sync_folder(inode),
            Operation::Destroy | Operation::ReleaseDir(_) => Ok(()),
            _ => self
                .answer_change(actor, request, answer)
                .or_else(|| self.answer_file(actor, request, answer))
                .or_else(|| self.answer_extended(actor, request, answer))
                .unwrap_or(Err(Errno::NOSYS)),
        }
    }

    /// Operations that make, move or remove names; `None` is "another kind".
    fn answer_change(
        &self,
        actor: &mut Actor,
        request: &Request<'_>,
        answer: &mut Answer,
    ) -> Option<Result<(), Errno>> {
        let (inode, caller) = (InodeId(request.inode), &request.caller);
        Some(match request.operation {
            Operation::MkNod { with, name } => {
                self.make_node(actor, caller, inode, name, &with, answer)
            }
            Operation::MkDir { with, name } => {
                self.make_folder(actor, caller, inode, name, &with, answer)
            }
            Operation::SymLink { name, target } => {
                self.make_symlink(actor, caller, inode, name, target, answer)
            }
            Operation::Create { with, name } => {
                self.create(actor, caller, inode, name, &with, answer)
            }
            Operation::TmpFile(with) => self.create_nameless(actor, caller, inode, &with, answer),
            Operation::Link { source, name } => self.link(InodeId(source), inode, name, answer),
            Operation::Unlink { name } => self.unlink(inode, name),
            Operation::RmDir { name } => self.remove_folder(inode, name),
            Operation::Rename { name, new_parent, new_name, flags } => {
                self.rename((inode, name), (InodeId(new_parent), new_name), flags)
            }
            _ => return None,
        })
    }

    /// Operations on open files; `None` is "another kind".
    fn answer_file(
        &self,
        actor: &mut Actor,
        request: &Request<'_>,
        answer: &mut Answer,
    ) -> Option<Result<(), Errno>> {
        let inode = InodeId(request.inode);
        Some(match request.operation {
            Operation::Open(with) => self.open(actor, request, &with, answer),
            Operation::Release(with) => self.release(inode, &with),
            Operation::Read(with) => self.read(inode, &with, answer),
            Operation::Write { with, data } => self.write(actor, request, (&with, data), answer),
            Operation::Flush(with) => self.flush(inode, &with),
            Operation::GetLock(with) => self.get_lock(inode, &with, answer),
            Operation::FSync(with) => self.sync(inode, with.flags & 1 != 0),
            Operation::FAllocate(with) => self.allocate(actor, request, &with),
            Operation::LSeek(with) => self.seek(inode, &with, answer),
            Operation::CopyFileRange { with, long } => {
                self.copy(actor, request, &with, long, answer)
            }
            Operation::SyncFs => self.sync_volumes(),
            _ => return None,
        })
    }

    /// Operations on extended attributes; `None` is "another kind".
    fn answer_extended(
        &self,
        actor: &Actor,
        request: &Request<'_>,
        answer: &mut Answer,
    ) -> Option<Result<(), Errno>> {
        let inode = InodeId(request.inode);
        Some(match request.operation {
            Operation::GetXattr { .. }
            | Operation::SetXattr { .. }
            | Operation::ListXattr { .. }
            | Operation::RemoveXattr { .. }
                if !self.behaviour.xattr =>
            {
                Err(Errno::NOSYS)
            }
            Operation::GetXattr { size, name } => self.get_xattr(inode, name, size, answer),
            Operation::SetXattr { with, name, value } => {
                self.set_xattr(actor, inode, name, value, &with)
            }
            Operation::ListXattr { size } => self.list_xattr(inode, &request.caller, size, answer),
            Operation::RemoveXattr { name } => self.remove_xattr(inode, name),
            _ => return None,
        })
    }
}
