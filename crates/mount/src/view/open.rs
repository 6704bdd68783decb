//! How the data of an open file moves: decided once for all who have it open.
//!
//! The kernel insists that all opens of an inode at one time use the same backing file, so the
//! choice lies with the inode. The kernel's number for a backing file is kept for a while after the
//! last close: the next open then costs no system call here.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};

use rustix::fs::{OFlags, Statx};
use rustix::io::Errno;
use thruway_fuse::wire::{OpenIn, OpenOut, ReleaseIn, open_flag, open_in_flag};
use thruway_fuse::{Answer, Caller, Request};
use thruway_sys::fuse;

use super::View;
use super::data::{is_setgid_for_locks, is_setid};
use super::judging::{JUDGED, Subject};
use super::lookup::stat_place;
use crate::actor::{Actor, errno};
use crate::inodes::{Backing, InodeId, lock};
use crate::memory::Count;
use crate::policy::{Access, Verdict};

/// Backing files that are kept although nobody has them open. Each holds an inode of the source in
/// the kernel's memory, a KiB or so.
const IDLE_MAX: usize = 1024;

/// In place of a backing id: this inode's data goes through the daemon.
const DAEMON_IO: i32 = -1;

/// Inodes whose backing file is kept without need, the one that is longest idle first.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    inodes: Mutex<VecDeque<InodeId>>,
}

/// How the data of one open file moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// By the kernel.
    Passthrough { backing_id: i32 },
    /// By the kernel for maps; reads and writes come as requests, because a write of this caller
    /// may have to leave setuid and setgid as they are.
    Attended { backing_id: i32 },
    /// By requests.
    Daemon,
    /// By requests, each of which is judged: the kernel keeps no data.
    Judged,
    /// By requests, and no data in the kernel that we have not: contents are judged by what we have.
    Unmapped,
}

impl View {
    pub(super) fn open(
        &self,
        actor: &Actor,
        request: &Request<'_>,
        with: &OpenIn,
        answer: &mut Answer,
    ) -> Result<(), Errno> {
        if self.behaviour.frozen {
            // "Never ask again": reads come without an open.
            return Err(Errno::NOSYS);
        }
        let id = InodeId(request.inode);
        let flags = OFlags::from_bits_retain(with.flags);
        let verdict = self.judge_open(&request.caller, id, flags)?;
        if flags.contains(OFlags::TRUNC) {
            let kills = with.open_flags & open_in_flag::KILL_PRIVILEGES != 0;
            self.resize(actor, &request.caller, (id, 0), kills)?;
        } else if writes(flags) {
            // A file that runs, or may not change: the kernel would only say EIO of its own attempt.
            self.reopen(id, flags & (OFlags::ACCMODE | OFlags::APPEND))?;
        }
        let backing_id = self.inodes.update_backing(id, |backing| {
            self.acquire(backing, verdict, || self.back(&*self.place(id)?))
        })?;
        self.note_open(id, writes(flags));
        let way = match self.way(id, backing_id, flags, request.caller.uid == 0)? {
            Way::Daemon if verdict == Verdict::DaemonIo => Way::Judged,
            Way::Daemon if flags.contains(OFlags::RDWR) && self.scans() => Way::Unmapped,
            way => way,
        };
        answer.put(&self.opened(way));
        Ok(())
    }

    fn judge_open(&self, caller: &Caller, id: InodeId, flags: OFlags) -> Result<Verdict, Errno> {
        let verdict = self.judge(caller, Subject::Inode(id), access(flags))?;
        if flags.contains(OFlags::WRONLY) && !flags.contains(OFlags::TRUNC) {
            self.judge_partial_change(caller, id)?;
        }
        if flags.contains(OFlags::RDWR) && self.judge.is_some() {
            self.inodes.set_mappable(id);
        }
        Ok(verdict)
    }

    /// Opens a file that was just made, through the descriptor that made it.
    pub(super) fn open_new(
        &self,
        id: InodeId,
        stat: &Statx,
        (flags, verdict): (u32, Verdict),
        file: &OwnedFd,
    ) -> Way {
        let backing_id = self
            .inodes
            .update_backing(id, |backing| self.acquire(backing, verdict, || self.back(file)))
            .unwrap_or(DAEMON_IO);
        self.note_open_new(id, writes(OFlags::from_bits_retain(flags)));
        let is_mappable = flags & OFlags::RDWR.bits() != 0 && self.judge.is_some();
        if is_mappable {
            self.inodes.set_mappable(id);
        }
        match backing_id {
            DAEMON_IO => {
                self.pin_open(id, || file.try_clone().map_err(|error| errno(&error)));
                match verdict {
                    Verdict::DaemonIo => Way::Judged,
                    _ if is_mappable && self.scans() => Way::Unmapped,
                    _ => Way::Daemon,
                }
            }
            backing_id if is_setid(stat) && writes(OFlags::from_bits_retain(flags)) => {
                Way::Attended { backing_id }
            }
            backing_id => Way::Passthrough { backing_id },
        }
    }

    fn way(
        &self,
        id: InodeId,
        backing_id: i32,
        flags: OFlags,
        is_root: bool,
    ) -> Result<Way, Errno> {
        if backing_id == DAEMON_IO {
            self.pin_open(id, || self.place(id)?.try_clone().map_err(|error| errno(&error)));
            return Ok(Way::Daemon);
        }
        if writes(flags) {
            let stat = stat_place(self.place(id)?)?;
            if is_setgid_for_locks(&stat) || is_root && is_setid(&stat) {
                return Ok(Way::Attended { backing_id });
            }
        }
        Ok(Way::Passthrough { backing_id })
    }

    /// Keeps a file alive whose data goes through us: the kernel has no backing file that does.
    fn pin_open(&self, id: InodeId, place: impl FnOnce() -> Result<OwnedFd, Errno>) {
        if self.pins.get(id).is_none()
            && let Ok(place) = place()
        {
            self.pins.hold(id, Arc::new(place));
        }
    }

    /// One more open: the backing file is the one of the others, or `back` opens it.
    fn acquire(
        &self,
        backing: &mut Backing,
        verdict: Verdict,
        back: impl FnOnce() -> Result<i32, Errno>,
    ) -> Result<i32, Errno> {
        if verdict == Verdict::DaemonIo && backing.id != DAEMON_IO {
            if backing.opens > 0 {
                // The kernel moves the file's data for somebody else, and does so for all or none.
                return Err(Errno::BUSY);
            }
            self.close_backing(std::mem::replace(&mut backing.id, DAEMON_IO));
        }
        if backing.id == 0 {
            backing.id = back()?;
        }
        backing.opens += 1;
        let way = if backing.id == DAEMON_IO { Count::DaemonIo } else { Count::Passthrough };
        self.memory.count(way);
        Ok(backing.id)
    }

    /// Whether the kernel lets us give it files at all: it is tried with one of our own.
    pub(super) fn may_pass_through(&self) -> Result<(), Errno> {
        let backing_id = fuse::open_backing(self.device.as_fd(), self.memory.as_fd());
        self.close_backing(backing_id.map_err(|error| errno(&error))?);
        Ok(())
    }

    /// Gives the file to the kernel, or decides that its data goes through the daemon.
    fn back(&self, file: &OwnedFd) -> Result<i32, Errno> {
        if !self.passes_through {
            return Ok(DAEMON_IO);
        }
        match fuse::open_backing(self.device.as_fd(), file.as_fd()).map_err(|error| errno(&error)) {
            Ok(backing_id) => Ok(backing_id),
            Err(errno @ (Errno::NOMEM | Errno::NFILE | Errno::BADF)) => Err(errno),
            Err(errno) => {
                self.refusals.note(errno);
                Ok(DAEMON_IO)
            }
        }
    }

    pub(super) fn release(&self, id: InodeId, with: &ReleaseIn) -> Result<(), Errno> {
        self.end_flock(id, with);
        let flags = OFlags::from_bits_retain(with.flags);
        if writes(flags) {
            self.note_written(id);
        }
        if flags.contains(OFlags::RDWR) {
            self.tell_if_changed(id);
        }
        let (is_closed, now_idle) = self.inodes.update_backing(id, |backing| {
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
            self.keep_idle(id);
        }
        if is_closed {
            if self.behaviour.shared_locks {
                self.locks.end_all(id);
            }
            self.pins.release(id);
            self.readers.remove(id);
            self.writers.remove(id);
        }
        Ok(())
    }

    fn keep_idle(&self, id: InodeId) {
        let longest_idle = {
            let mut idle = lock(&self.idle.inodes);
            idle.push_back(id);
            if idle.len() > IDLE_MAX { idle.pop_front() } else { None }
        };
        if let Some(id) = longest_idle {
            self.drop_idle(id);
        }
    }

    /// Closes the backing file of an inode that was idle, unless it is open again.
    fn drop_idle(&self, id: InodeId) {
        if self.inodes.get(id).is_err() {
            return;
        }
        let backing_id = self.inodes.update_backing(id, |backing| {
            backing.is_idle = false;
            if backing.opens == 0 { std::mem::take(&mut backing.id) } else { 0 }
        });
        self.close_backing(backing_id);
    }

    /// Closes the backing files that are idle now.
    pub(crate) fn drop_all_idle(&self) {
        let idle = std::mem::take(&mut *lock(&self.idle.inodes));
        idle.into_iter().for_each(|id| self.drop_idle(id));
    }

    pub(super) fn close_backing(&self, backing_id: i32) {
        if backing_id > 0 {
            // The connection may be gone, and the backing file with it.
            let _ = fuse::close_backing(self.device.as_fd(), backing_id);
        }
    }

    /// The answer to an open.
    pub(super) fn opened(&self, way: Way) -> OpenOut {
        // With shared locks the kernel must say when a descriptor is closed: locks end then.
        let quiet = if self.behaviour.shared_locks { 0 } else { open_flag::NO_FLUSH };
        let (flags, backing_id) = match way {
            Way::Passthrough { backing_id } => (open_flag::PASSTHROUGH, backing_id),
            Way::Attended { backing_id } => {
                (open_flag::PASSTHROUGH | open_flag::DIRECT_IO, backing_id)
            }
            Way::Daemon => (0, 0),
            Way::Judged | Way::Unmapped => (open_flag::DIRECT_IO, 0),
        };
        let handle = if way == Way::Judged { JUDGED } else { 0 };
        OpenOut { handle, flags: flags | quiet, backing_id }
    }
}

/// What an open with these flags is for.
pub(super) fn access(flags: OFlags) -> Access {
    Access {
        reads: !flags.contains(OFlags::WRONLY),
        writes: writes(flags) || flags.contains(OFlags::TRUNC),
    }
}

fn writes(flags: OFlags) -> bool {
    flags.intersects(OFlags::WRONLY | OFlags::RDWR)
}
