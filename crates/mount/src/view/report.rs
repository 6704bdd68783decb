//! Reports the status of the view.

use std::collections::BTreeMap;
use std::io::Error;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::process::{Pid, getpid, getppid};
use thruway_fuse::wire::{feature, opcode};

use super::entries::each_entry;
use super::state::View;
use crate::branches::Branches;
use crate::memory::Count;
use crate::{Plan, Status};

/// The reason why the kernel refuses backing files on a file system that is itself stacked.
const STACKED: &str = "the source is a stacked file system, and Linux stacks no more than two";

/// The reason why the kernel refuses all backing files of this process.
const UNPRIVILEGED: &str = "passthrough needs CAP_SYS_ADMIN in the initial user namespace";

/// Room for one or two names.
const PROBE_BYTES: usize = 4096;

/// The operations that a daemon serves, by the kernel's names.
const OPERATIONS: [(u32, &str); 43] = [
    (opcode::LOOKUP, "lookup"),
    (opcode::FORGET, "forget"),
    (opcode::GETATTR, "getattr"),
    (opcode::SETATTR, "setattr"),
    (opcode::READLINK, "readlink"),
    (opcode::SYMLINK, "symlink"),
    (opcode::MKNOD, "mknod"),
    (opcode::MKDIR, "mkdir"),
    (opcode::UNLINK, "unlink"),
    (opcode::RMDIR, "rmdir"),
    (opcode::RENAME, "rename"),
    (opcode::LINK, "link"),
    (opcode::OPEN, "open"),
    (opcode::READ, "read"),
    (opcode::WRITE, "write"),
    (opcode::STATFS, "statfs"),
    (opcode::RELEASE, "release"),
    (opcode::FSYNC, "fsync"),
    (opcode::SETXATTR, "setxattr"),
    (opcode::GETXATTR, "getxattr"),
    (opcode::LISTXATTR, "listxattr"),
    (opcode::REMOVEXATTR, "removexattr"),
    (opcode::FLUSH, "flush"),
    (opcode::OPENDIR, "opendir"),
    (opcode::READDIR, "readdir"),
    (opcode::RELEASEDIR, "releasedir"),
    (opcode::FSYNCDIR, "fsyncdir"),
    (opcode::GETLK, "getlk"),
    (opcode::SETLK, "setlk"),
    (opcode::SETLKW, "setlkw"),
    (opcode::ACCESS, "access"),
    (opcode::CREATE, "create"),
    (opcode::INTERRUPT, "interrupt"),
    (opcode::IOCTL, "ioctl"),
    (opcode::BATCH_FORGET, "batch_forget"),
    (opcode::FALLOCATE, "fallocate"),
    (opcode::READDIRPLUS, "readdirplus"),
    (opcode::RENAME2, "rename2"),
    (opcode::LSEEK, "lseek"),
    (opcode::COPY_FILE_RANGE, "copy_file_range"),
    (opcode::TMPFILE, "tmpfile"),
    (opcode::STATX, "statx"),
    (opcode::COPY_FILE_RANGE_64, "copy_file_range_64"),
];

const COUNTS: [(Count, &str); 6] = [
    (Count::Passthrough, "opens_passthrough"),
    (Count::DaemonIo, "opens_daemon_io"),
    (Count::ReportedChanges, "changes_told"),
    (Count::LateReports, "changes_told_late"),
    (Count::Refused, "refused_by_policy"),
    (Count::FolderReads, "merged_folders_read"),
];

impl View {
    /// Returns the status of the mount.
    pub(crate) fn status(&self, plan: &Plan) -> Status {
        status(self, plan)
    }
}

fn status(view: &View, plan: &Plan) -> Status {
    let memory = &view.memory;
    let requests = memory.requests();
    let count = |(number, name): (u32, &str)| {
        let count = requests.get(number as usize).copied().unwrap_or(0);
        (count > 0).then(|| (name.to_owned(), count))
    };
    let parent = getppid();
    let is_orphaned = parent != view.supervisor;
    let (merged_folders, merged_names) =
        view.folders.branches().map_or((0, 0), |branches| branches.counts());
    Status {
        rules: view.access.rules(),
        merged_folders,
        merged_names,
        failed_sources: failed_sources(view),
        target: plan.target.display().to_string(),
        sources: view.files.roots.table().specs().map(ToString::to_string).collect(),
        source_specs: view.files.roots.table().specs().cloned().collect(),
        free_min_bytes: plan.free_min_bytes,
        process: if is_orphaned { Some(getpid()) } else { parent }.map(Pid::as_raw_pid),
        is_orphaned,
        source_errors: view.source_errors.by_name(),
        mode: plan.mode,
        transport: transport(view).into(),
        passthrough: view.passes_through(),
        daemon_io_reasons: daemon_io_reasons(view),
        protocol: format!("7.{}", view.connection.negotiated.minor),
        restarts: memory.counted(Count::Restarts),
        owners: view.behaviour.owners.as_ref().map(ToString::to_string),
        follows_links: view.links.is_some(),
        changes: view.changes(),
        watched_folders: view.watch().map(|watch| watch.len() as u64),
        open_files: view.files.inodes.open().len() as u64,
        inodes: u64::try_from(view.files.inodes.len()).unwrap_or(u64::MAX),
        counts: COUNTS
            .into_iter()
            .map(|(counter, name)| (name.to_owned(), memory.counted(counter)))
            .collect(),
        requests: OPERATIONS.into_iter().filter_map(count).collect(),
    }
}

fn transport(view: &View) -> &'static str {
    let is_ring = view.connection.negotiated.has(feature::OVER_IO_URING);
    if is_ring { "io_uring" } else { "/dev/fuse" }
}

/// Returns the sources that cannot be used. The names of those that are absent are not shown any more.
fn failed_sources(view: &View) -> BTreeMap<String, String> {
    view.mount_changes.wait_for_change();
    let failures = view.folders.branches().into_iter().flat_map(Branches::failures);
    let failures = failures.chain(probe(view));
    let failures = failures.map(|(branch, errno)| (branch, Error::from(errno).to_string()));
    let source = |(branch, text): (usize, String)| {
        let spec = view.files.roots.spec(u16::try_from(branch).ok()?)?;
        Some((spec.path.display().to_string(), text))
    };
    let absent = view.files.roots.absent().into_iter();
    let absent =
        absent.map(|(spec, absence)| (spec.path.display().to_string(), absence.to_string()));
    failures.filter_map(source).chain(absent).collect()
}

fn daemon_io_reasons(view: &View) -> BTreeMap<String, u64> {
    let mut reasons = view.backing.refusals.by_name();
    // The system's descriptions of these errors would mislead users.
    for (errno, reason) in [(Errno::LOOP, STACKED), (Errno::PERM, UNPRIVILEGED)] {
        if let Some(count) = reasons.remove(&Error::from(errno).to_string()) {
            reasons.insert(reason.into(), count);
        }
    }
    reasons
}

/// Returns the errors of sources that currently cannot be read.
fn probe(view: &View) -> Vec<(usize, Errno)> {
    let read = |root: &OwnedFd| each_entry(root, 0, PROBE_BYTES, |_| Ok(false));
    let failure =
        |(branch, root): (u16, Arc<OwnedFd>)| Some((usize::from(branch), read(&root).err()?));
    view.files.roots.present().into_iter().filter_map(failure).collect()
}
