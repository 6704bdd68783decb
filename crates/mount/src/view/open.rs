//! Opens files, and decides how their data moves, for all simultaneous opens.

use std::os::fd::OwnedFd;

use rustix::fs::{OFlags, Statx};
use rustix::io::Errno;
use thruway_fuse::Caller;
use thruway_fuse::wire::{OpenIn, OpenOut, ReleaseIn, open_flag, open_in_flag};

use super::access::CHECKED;
use super::backing_files::{DAEMON_IO, DataWay};
use super::context::Context;
use super::copy_up::copy_up;
use super::data::{is_setgid_for_locks, is_setid};
use super::stat::stat_fd;
use super::state::View;
use super::target::Target;
use super::{attributes, locking};
use crate::actor::errno;
use crate::inodes::InodeId;
use crate::owners::Owners;
use crate::policy::{Access, Verdict};

/// The way in which the data of an open file moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IoMode {
    /// The kernel moves the data.
    Passthrough { backing_id: i32 },
    /// The kernel moves the data of mappings. Reads and writes are requests, because a write by this caller may have to
    /// preserve setuid and setgid.
    PassthroughDirect { backing_id: i32 },
    /// The daemon moves the data, and the kernel caches it.
    Daemon,
    /// The daemon moves the data and checks each read. The kernel caches nothing.
    CheckedReads,
    /// The daemon moves the data, and the kernel caches nothing, so that checks see the newest content.
    Unmapped,
}

pub(super) fn open(cx: &mut Context<'_>, with: &OpenIn) -> Result<(), Errno> {
    let view = cx.view;
    let actor = &*cx.actor;
    let request = cx.request;
    if view.behaviour.frozen {
        // ENOSYS means "never ask again": reads arrive without an open.
        return Err(Errno::NOSYS);
    }
    let id = InodeId(request.inode);
    let flags = OFlags::from_bits_retain(with.flags);
    let verdict = check_open(view, &request.caller, id, flags)?;
    let changes = changes(with);
    let truncates = flags.contains(OFlags::TRUNC);
    if changes {
        copy_up(view, id, truncates.then_some(0))?;
    } else if let Some(upper) = view.folders.upper() {
        upper.check_complete(&*view.files.path_fd(id)?)?;
    }
    if view.moves.is_gone(id) && view.folders.upper().is_some() {
        // On ESTALE, the kernel looks the name up again.
        return Err(Errno::STALE);
    }
    if changes
        && view.behaviour.owners.is_some()
        && Owners::protects(&request.caller, stat_fd(view.files.path_fd(id)?)?.stx_mode)
    {
        return Err(Errno::PERM);
    }
    // No move takes place until the file is open for writing.
    let _kept = if changes { view.keep_file(id)? } else { None };
    if changes {
        view.files.roots.check_writable(view.files.inodes.get(id)?.branch)?;
    }
    if flags.contains(OFlags::TRUNC) {
        let kills = with.open_flags & open_in_flag::KILL_PRIVILEGES != 0;
        attributes::resize(view, actor, &request.caller, (id, 0), kills)?;
    } else if writes(flags) {
        // Fails if the file is running or immutable. The kernel's own attempt would only fail with EIO.
        view.files.reopen(id, flags & (OFlags::ACCMODE | OFlags::APPEND))?;
    }
    let backing_id = view.files.inodes.update_backing(id, |backing| {
        let way = way(view, verdict, writes(flags));
        view.backing.acquire(backing, way, || view.backing.back(&*view.files.path_fd(id)?))
    })?;
    view.invalidation.note_open(id, writes(flags));
    let io_mode = match io_mode(view, id, backing_id, flags, request.caller.uid == 0)? {
        IoMode::Daemon if verdict == Verdict::DaemonIo => IoMode::CheckedReads,
        IoMode::Daemon if flags.contains(OFlags::RDWR) && view.access.scans() => IoMode::Unmapped,
        io_mode => io_mode,
    };
    if writes(flags) {
        view.moves.add_writer(id);
    }
    cx.reply.put(&opened(view, io_mode));
    Ok(())
}

/// Whether an open with these flags may change the file.
pub(super) fn changes(with: &OpenIn) -> bool {
    let flags = OFlags::from_bits_retain(with.flags);
    writes(flags) || flags.contains(OFlags::TRUNC)
}

fn check_open(view: &View, caller: &Caller, id: InodeId, flags: OFlags) -> Result<Verdict, Errno> {
    let verdict = view.access.check(caller, Target::Inode(id), access(flags))?;
    if flags.contains(OFlags::WRONLY) && !flags.contains(OFlags::TRUNC) {
        view.access.check_partial_change(caller, id)?;
    }
    if flags.contains(OFlags::RDWR) && view.access.is_enforced() {
        view.files.inodes.flags(id).set_mappable();
    }
    Ok(verdict)
}

/// Opens a new file through the descriptor that created it.
pub(super) fn open_new(
    view: &View,
    id: InodeId,
    stat: &Statx,
    (flags, verdict): (u32, Verdict),
    file: &OwnedFd,
) -> IoMode {
    let backing_id = view
        .files
        .inodes
        .update_backing(id, |backing| {
            let way = way(view, verdict, writes(OFlags::from_bits_retain(flags)));
            view.backing.acquire(backing, way, || view.backing.back(file))
        })
        .unwrap_or(DAEMON_IO);
    view.invalidation.note_open_new(id, writes(OFlags::from_bits_retain(flags)));
    if writes(OFlags::from_bits_retain(flags)) {
        view.moves.add_writer(id);
    }
    let is_mappable = flags & OFlags::RDWR.bits() != 0 && view.access.is_enforced();
    if is_mappable {
        view.files.inodes.flags(id).set_mappable();
    }
    match backing_id {
        DAEMON_IO => {
            view.files.pin_open(id, || file.try_clone().map_err(|error| errno(&error)));
            match verdict {
                Verdict::DaemonIo => IoMode::CheckedReads,
                _ if is_mappable && view.access.scans() => IoMode::Unmapped,
                _ => IoMode::Daemon,
            }
        }
        backing_id if is_setid(stat) && writes(OFlags::from_bits_retain(flags)) => {
            IoMode::PassthroughDirect { backing_id }
        }
        backing_id => IoMode::Passthrough { backing_id },
    }
}

/// Returns the way in which the data of an open should move.
fn way(view: &View, verdict: Verdict, writes: bool) -> DataWay {
    match verdict {
        Verdict::DaemonIo => DataWay::DaemonOnly,
        // Only writes through the daemon can go on in another source.
        _ if writes && view.behaviour.moves_when_full => DataWay::DaemonPreferred,
        _ => DataWay::Kernel,
    }
}

fn io_mode(
    view: &View,
    id: InodeId,
    backing_id: i32,
    flags: OFlags,
    is_root: bool,
) -> Result<IoMode, Errno> {
    if backing_id == DAEMON_IO {
        view.files
            .pin_open(id, || view.files.path_fd(id)?.try_clone().map_err(|error| errno(&error)));
        return Ok(IoMode::Daemon);
    }
    if writes(flags) {
        let stat = stat_fd(view.files.path_fd(id)?)?;
        if is_setgid_for_locks(&stat) || is_root && is_setid(&stat) {
            return Ok(IoMode::PassthroughDirect { backing_id });
        }
    }
    Ok(IoMode::Passthrough { backing_id })
}

pub(super) fn release(cx: &mut Context<'_>, with: &ReleaseIn) -> Result<(), Errno> {
    let id = cx.inode();
    let view = cx.view;
    locking::end_flock(view, id, with);
    let flags = OFlags::from_bits_retain(with.flags);
    if writes(flags) {
        view.moves.remove_writer(id);
        view.invalidation.note_written(id);
    }
    if flags.contains(OFlags::RDWR) {
        view.invalidation.invalidate_if_changed(id);
    }
    let (is_closed, now_idle) = view.files.inodes.update_backing(id, |backing| {
        backing.opens = backing.opens.saturating_sub(1);
        if backing.opens > 0 {
            return (false, false);
        }
        if backing.id == DAEMON_IO {
            backing.id = 0;
        }
        (true, backing.id != 0 && !std::mem::replace(&mut backing.is_idle, true))
    });
    if now_idle {
        view.backing.keep_idle(id);
    }
    if is_closed {
        if view.behaviour.shared_locks {
            view.locks.end_all(id);
        }
        view.files.close(id);
    }
    Ok(())
}

/// Returns the reply to an open.
pub(super) fn opened(view: &View, io_mode: IoMode) -> OpenOut {
    // With shared locks the kernel must report each close, since locks end there.
    let quiet = if view.behaviour.shared_locks { 0 } else { open_flag::NO_FLUSH };
    let (flags, backing_id) = match io_mode {
        IoMode::Passthrough { backing_id } => (open_flag::PASSTHROUGH, backing_id),
        IoMode::PassthroughDirect { backing_id } => {
            (open_flag::PASSTHROUGH | open_flag::DIRECT_IO, backing_id)
        }
        IoMode::Daemon => (0, 0),
        IoMode::CheckedReads | IoMode::Unmapped => (open_flag::DIRECT_IO, 0),
    };
    let handle = if io_mode == IoMode::CheckedReads { CHECKED } else { 0 };
    OpenOut { handle, flags: flags | quiet, backing_id }
}

/// Returns the access that an open with these flags needs.
pub(super) fn access(flags: OFlags) -> Access {
    Access {
        reads: !flags.contains(OFlags::WRONLY),
        writes: writes(flags) || flags.contains(OFlags::TRUNC),
    }
}

fn writes(flags: OFlags) -> bool {
    flags.intersects(OFlags::WRONLY | OFlags::RDWR)
}
