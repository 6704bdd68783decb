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
use crate::locks::Wanted;
use crate::transport::reply::{Outcome, ReplySender};

/// The kernel's numbers for the kinds of locks.
const READ: u32 = 0;
const WRITE: u32 = 1;
const UNLOCK: u32 = 2;

/// Sets a lock, now or, if it may `wait`, later.
pub(super) fn setlk(
    cx: &mut Context<'_>,
    with: &LockIn,
    wait: bool,
    sender: &Arc<dyn ReplySender>,
) -> Result<Outcome, Errno> {
    let view = cx.view;
    let request = cx.request;
    let wanted = wanted(with)?;
    let file = lock_file(view, holder(InodeId(request.inode), with))?;
    match view.locks.set(&file, &wanted) {
        Err(Errno::AGAIN) if wait => {
            view.locks.wait(request.unique, file, wanted, Arc::clone(sender))?;
            Ok(Outcome::Later)
        }
        done => done.map(|()| Outcome::Replied),
    }
}

pub(super) fn getlk(cx: &mut Context<'_>, with: &LockIn) -> Result<(), Errno> {
    let id = cx.inode();
    let view = cx.view;
    let Wanted::Record(lock) = wanted(with)? else { return Err(Errno::INVAL) };
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

/// A process has closed one of its descriptors of the file: by POSIX, its locks on it end.
pub(super) fn flush(cx: &mut Context<'_>, with: &FlushIn) -> Result<(), Errno> {
    let id = cx.inode();
    let view = cx.view;
    if !view.behaviour.shared_locks {
        // "Never ask again": there is nothing to write at a close.
        return Err(Errno::NOSYS);
    }
    view.locks.end(LockHolder { inode: id, owner: with.lock_owner, is_flock: false });
    Ok(())
}

/// An open file is closed for the last time: its `flock` ends.
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
            // A file that can only be appended to, or not be changed at all.
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

fn wanted(with: &LockIn) -> Result<Wanted, Errno> {
    let FileLock { start, end, kind, .. } = with.lock;
    let is_flock = with.flags & lock_flag::FLOCK != 0;
    let record = |kind| Wanted::Record(RecordLock { kind, start, end });
    Ok(match (kind, is_flock) {
        (READ, true) => Wanted::Flock(FlockOperation::NonBlockingLockShared),
        (WRITE, true) => Wanted::Flock(FlockOperation::NonBlockingLockExclusive),
        (UNLOCK, true) => Wanted::Flock(FlockOperation::Unlock),
        (READ, false) => record(LockKind::Shared),
        (WRITE, false) => record(LockKind::Exclusive),
        (UNLOCK, false) => Wanted::Unlock { start, end },
        _ => return Err(Errno::INVAL),
    })
}
