//! Holders of locks.

use serde::{Deserialize, Serialize};

use crate::inodes::InodeId;

/// A holder of locks on a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct LockHolder {
    pub(crate) inode: InodeId,
    /// The kernel's id of the process or the open file.
    pub(crate) owner: u64,
    /// Whether the locks come from `flock`, which does not conflict with record locks.
    pub(crate) is_flock: bool,
}
