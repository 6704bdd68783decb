//! Files that the kernel moves data to and from by itself.
//!
//! The kernel insists that all opens of an inode at one time use the same backing file, so the
//! choice lies with the inode. The kernel's number for a backing file is kept for a while after the
//! last close: the next open then costs no system call here.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use thruway_fuse::wire::feature;
use thruway_sys::fuse;

use super::connection::Connection;
use super::error_counts::ErrorCounts;
use crate::actor::errno;
use crate::inodes::{Backing, InodeId, Inodes, lock};
use crate::memory::{Count, Memory};
use crate::policy::Verdict;

/// Backing files that are kept although nobody has them open. Each holds an inode of the source in
/// the kernel's memory, a KiB or so.
const IDLE_MAX: usize = 1024;

/// In place of a backing id: this inode's data goes through the daemon.
pub(super) const DAEMON_IO: i32 = -1;

/// The backing files of all inodes.
#[derive(Debug)]
pub(super) struct BackingFiles {
    connection: Arc<Connection>,
    memory: Arc<Memory>,
    inodes: Arc<Inodes>,
    /// Inodes whose backing file is kept without need, the one that is longest idle first.
    idle: Mutex<VecDeque<InodeId>>,
    /// Why the kernel would not take backing files.
    pub(super) refusals: ErrorCounts,
    /// The kernel moves the data of files.
    passes_through: bool,
}

impl BackingFiles {
    pub(super) fn new(
        connection: Arc<Connection>,
        memory: Arc<Memory>,
        inodes: Arc<Inodes>,
    ) -> Self {
        let passes_through = connection.negotiated.has(feature::PASSTHROUGH);
        let (idle, refusals) = Default::default();
        let mut all = Self { connection, memory, inodes, idle, refusals, passes_through };
        if passes_through && let Err(errno) = all.may_pass_through() {
            all.passes_through = false;
            all.refusals.note(errno);
        }
        all
    }

    /// Whether the kernel moves the data of files.
    pub(super) fn pass_through(&self) -> bool {
        self.passes_through
    }

    /// One more open: the backing file is the one of the others, or `back` opens it.
    pub(super) fn acquire(
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
            self.connection.close_backing(std::mem::replace(&mut backing.id, DAEMON_IO));
        }
        if backing.id == 0 {
            backing.id = back()?;
        }
        backing.opens += 1;
        let io_mode = if backing.id == DAEMON_IO { Count::DaemonIo } else { Count::Passthrough };
        self.memory.count(io_mode);
        Ok(backing.id)
    }

    /// Whether the kernel lets us give it files at all: it is tried with one of our own.
    fn may_pass_through(&self) -> Result<(), Errno> {
        let backing_id = fuse::open_backing(self.connection.device.as_fd(), self.memory.as_fd());
        self.connection.close_backing(backing_id.map_err(|error| errno(&error))?);
        Ok(())
    }

    /// Gives the file to the kernel, or decides that its data goes through the daemon.
    pub(super) fn back(&self, file: &OwnedFd) -> Result<i32, Errno> {
        if !self.passes_through {
            return Ok(DAEMON_IO);
        }
        match fuse::open_backing(self.connection.device.as_fd(), file.as_fd())
            .map_err(|error| errno(&error))
        {
            Ok(backing_id) => Ok(backing_id),
            Err(errno @ (Errno::NOMEM | Errno::NFILE | Errno::BADF)) => Err(errno),
            Err(errno) => {
                self.refusals.note(errno);
                Ok(DAEMON_IO)
            }
        }
    }

    pub(super) fn keep_idle(&self, id: InodeId) {
        let longest_idle = {
            let mut idle = lock(&self.idle);
            idle.push_back(id);
            if idle.len() > IDLE_MAX { idle.pop_front() } else { None }
        };
        if let Some(id) = longest_idle {
            self.drop_idle(id);
        }
    }

    /// Closes the backing file of an inode that was idle, unless it is open again.
    pub(super) fn drop_idle(&self, id: InodeId) {
        if self.inodes.get(id).is_err() {
            return;
        }
        let backing_id = self.inodes.update_backing(id, |backing| {
            backing.is_idle = false;
            if backing.opens == 0 { std::mem::take(&mut backing.id) } else { 0 }
        });
        self.connection.close_backing(backing_id);
    }

    /// Closes the backing files that are idle now.
    pub(crate) fn drop_all_idle(&self) {
        let idle = std::mem::take(&mut *lock(&self.idle));
        idle.into_iter().for_each(|id| self.drop_idle(id));
    }
}
