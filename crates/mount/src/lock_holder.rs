//! Whose locks they are.

use serde::{Deserialize, Serialize};

use crate::inodes::InodeId;

/// The owner of locks on a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct LockHolder {
    pub(crate) inode: InodeId,
    /// The kernel's name for the process or the open file.
    pub(crate) owner: u64,
    /// `flock` and record locks do not meet each other.
    pub(crate) is_flock: bool,
}
