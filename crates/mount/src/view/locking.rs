//! Operations on locks.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use thruway_fuse::wire::{FileLock, FlushIn, LockIn, LockOut, ReleaseIn, lock_flag, release_flag};
use thruway_sys::record_lock::{LockKind, RecordLock, conflict};

use super::context::Context;
use super::state::View;
use crate::actor::errno;
use crate::inodes::InodeId;
use crate::lock_holder::LockHolder;
use crate::locks::LockChange;
use crate::transport::reply::{Outcome, ReplySender};

/// The kernel's numbers for the kinds of locks.
const READ: u32 = 0;
const WRITE: u32 = 1;
const UNLOCK: u32 = 2;

/// Sets a lock at once or, if the request may `wait`, later.
pub(super) fn setlk(
    cx: &mut Context<'_>,
    with: &LockIn,
    wait: bool,
    sender: &Arc<dyn ReplySender>,
) -> Result<Outcome, Errno> {
    let view = cx.view;
    let request = cx.request;
    let change = lock_change(with)?;
    let file = lock_file(view, holder(InodeId(request.inode), with))?;
    match view.locks.set(&file, &change) {
        Err(Errno::AGAIN) if wait => {
            view.locks.wait(request.unique, file, change, Arc::clone(sender))?;
            Ok(Outcome::Later)
        }
        done => done.map(|()| Outcome::Replied),
    }
}

pub(super) fn getlk(cx: &mut Context<'_>, with: &LockIn) -> Result<(), Errno> {
    let id = cx.inode();
    let view = cx.view;
    let LockChange::Record(lock) = lock_change(with)? else { return Err(Errno::INVAL) };
    let file = lock_file(view, holder(id, with))?;
    let found = conflict(file.as_fd(), &lock).map_err(|e| errno(&e))?;
    let lock = match found {
        None => FileLock { kind: UNLOCK, ..with.lock },
        Some((lock, pid)) => FileLock {
            start: lock.start,
            end: lock.end,
            kind: if lock.kind == LockKind::Shared { READ } else { WRITE },
            // A lock of an open file has no process.
            pid: u32::try_from(pid).unwrap_or(0),
        },
    };
    cx.reply.put(&LockOut { lock });
    Ok(())
}

/// Releases the locks of a process that has closed a descriptor of the file, as POSIX demands.
pub(super) fn flush(cx: &mut Context<'_>, with: &FlushIn) -> Result<(), Errno> {
    let id = cx.inode();
    let view = cx.view;
    if !view.behaviour.shared_locks {
        // ENOSYS means "never ask again": there is nothing to write at a close.
        return Err(Errno::NOSYS);
    }
    view.locks.end(LockHolder { inode: id, owner: with.lock_owner, is_flock: false });
    Ok(())
}

/// Releases the `flock` of an open file that is closed for the last time.
pub(super) fn end_flock(view: &View, id: InodeId, with: &ReleaseIn) {
    if with.release_flags & release_flag::FLOCK_UNLOCK != 0 {
        view.locks.end(LockHolder { inode: id, owner: with.lock_owner, is_flock: true });
    }
}

fn lock_file(view: &View, holder: LockHolder) -> Result<Arc<OwnedFd>, Errno> {
    view.locks.file(holder, || {
        // A lock for writing needs a file that is open for writing, if that is permitted.
        match view.files.reopen(holder.inode, OFlags::RDWR) {
            Err(Errno::ROFS | Errno::TXTBSY) => view.files.open_for_reading(holder.inode),
            // The file can only be appended to, or not be changed at all.
            Err(Errno::PERM) => view
                .files
                .reopen(holder.inode, OFlags::RDWR | OFlags::APPEND)
                .or_else(|_| view.files.open_for_reading(holder.inode)),
            opened => opened,
        }
    })
}

fn holder(inode: InodeId, with: &LockIn) -> LockHolder {
    LockHolder { inode, owner: with.owner, is_flock: with.flags & lock_flag::FLOCK != 0 }
}

fn lock_change(with: &LockIn) -> Result<LockChange, Errno> {
    let FileLock { start, end, kind, .. } = with.lock;
    let is_flock = with.flags & lock_flag::FLOCK != 0;
    let record = |kind| LockChange::Record(RecordLock { kind, start, end });
    Ok(match (kind, is_flock) {
        (READ, true) => LockChange::Flock(FlockOperation::NonBlockingLockShared),
        (WRITE, true) => LockChange::Flock(FlockOperation::NonBlockingLockExclusive),
        (UNLOCK, true) => LockChange::Flock(FlockOperation::Unlock),
        (READ, false) => record(LockKind::Shared),
        (WRITE, false) => record(LockKind::Exclusive),
        (UNLOCK, false) => LockChange::Unlock { start, end },
        _ => return Err(Errno::INVAL),
    })
}
