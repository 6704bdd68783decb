//! What the processes of one mount tell each other.
//!
//! Three of them take part. The **front** is what the user started. The **supervisor** has mounted,
//! and holds everything that must outlive a crash: the connection, the sources, the table of
//! inodes. The **worker** answers the kernel's requests.

use serde::{Deserialize, Serialize};

use crate::lock_holder::LockHolder;
use crate::{Error, Plan};

/// What a process of ours that was just started shall do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Mount, and look after a worker.
    Supervise(Plan),
    /// Answer requests.
    Serve(Service),
}

/// What a worker needs. With it come descriptors: the memory, the socket for status (if there is
/// one), the sources, the files that locks are on, the connection and its clones.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Service {
    pub(crate) plan: Plan,
    /// `major:minor` of the mount.
    pub(crate) mount_device: String,
    pub(crate) has_status_socket: bool,
    /// A worker before this one has died.
    pub(crate) is_restart: bool,
    /// Whose locks it has left.
    pub(crate) locks: Vec<LockHolder>,
}

/// How it went.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The mount answers.
    Ready,
    /// It never will.
    Failed(Error),
    /// The open file that comes along may have locks of this holder.
    Locking(LockHolder),
    /// It has none any more.
    Unlocked(LockHolder),
}
