//! Backing files, which the kernel reads and writes without the daemon.
//!
//! All simultaneous opens of an inode must use the same backing file, so the backing file belongs to the inode. The
//! kernel's id of a backing file is kept for a while after the last close, so that the next open needs no system call.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use thruway_fuse::wire::feature;
use thruway_sys::fuse;

use super::connection::Connection;
use super::error_counts::ErrorCounts;
use crate::actor::errno;
use crate::inodes::{BackingState, InodeId, Inodes, lock};
use crate::memory::{Count, Memory};

/// The maximum number of idle backing files. Each holds an inode of the source in the kernel's memory, about 1 KiB.
const IDLE_MAX: usize = 1024;

/// Stored instead of a backing id if the daemon moves the inode's data.
pub(super) const DAEMON_IO: i32 = -1;

/// The way in which the data of an open should move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DataWay {
    /// By the kernel, where possible.
    Kernel,
    /// By the daemon, unless the kernel already moves the data of other opens.
    DaemonPreferred,
    /// By the daemon.
    DaemonOnly,
}

/// The backing files of all inodes.
#[derive(Debug)]
pub(super) struct BackingFiles {
    connection: Arc<Connection>,
    memory: Arc<Memory>,
    inodes: Arc<Inodes>,
    /// Inodes with an idle backing file, the longest idle first.
    idle: Mutex<VecDeque<InodeId>>,
    /// The errors with which the kernel refused backing files.
    pub(super) refusals: ErrorCounts,
    /// Whether the kernel moves the data of files.
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

    /// Adds an open, which uses the backing file of other opens, or the file that `back` registers.
    pub(super) fn acquire(
        &self,
        backing: &mut BackingState,
        way: DataWay,
        back: impl FnOnce() -> Result<i32, Errno>,
    ) -> Result<i32, Errno> {
        let is_in_use = backing.opens > 0;
        let wants_daemon = match way {
            DataWay::Kernel => false,
            DataWay::DaemonPreferred => !is_in_use,
            DataWay::DaemonOnly => true,
        };
        if wants_daemon && backing.id != DAEMON_IO {
            if is_in_use {
                // The kernel moves the data for other opens, and all opens must agree.
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

    /// Tests with a file of this process whether the kernel accepts backing files at all.
    fn may_pass_through(&self) -> Result<(), Errno> {
        let backing_id = fuse::open_backing(self.connection.device.as_fd(), self.memory.as_fd());
        self.connection.close_backing(backing_id.map_err(|error| errno(&error))?);
        Ok(())
    }

    /// Registers the file as a backing file, or falls back to daemon I/O.
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

    /// Closes the backing file of an idle inode, unless the inode was opened again.
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

    /// Closes all idle backing files.
    pub(crate) fn drop_all_idle(&self) {
        let idle = std::mem::take(&mut *lock(&self.idle));
        idle.into_iter().for_each(|id| self.drop_idle(id));
    }
}
