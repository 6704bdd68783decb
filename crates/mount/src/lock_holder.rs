//! Holders of locks.

use serde::{Deserialize, Serialize};

use crate::inodes::InodeId;

/// The holder of locks on a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct LockHolder {
    pub(crate) inode: InodeId,
    /// The kernel's number for the process or the open file.
    pub(crate) owner: u64,
    /// `flock` and record locks do not conflict with each other.
    pub(crate) is_flock: bool,
}
