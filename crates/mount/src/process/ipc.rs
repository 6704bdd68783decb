//! The messages between the processes of a mount.
//!
//! The user starts the **launcher**. The **supervisor** mounts, and holds everything that must outlive a crash: the
//! connection, the sources, and the table of inodes. The **worker** serves the kernel's requests.

use serde::{Deserialize, Serialize};

use crate::lock_holder::LockHolder;
use crate::policy::PolicyFile;
use crate::source_table::SourceTable;
use crate::{Error, Plan};

/// The command from a parent to a process that it has just started.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Command {
    /// Mount, and keep a worker running.
    Supervise(Plan),
    /// Serve requests.
    Serve(ServeCommand),
}

/// The parameters of a worker. The message carries descriptors in this order: the memory, the status socket if there is
/// one, sources that are not followed by path, the locked files, and the connection with its clones.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ServeCommand {
    pub(crate) plan: Plan,
    /// The device number of the mount as `major:minor`.
    pub(crate) mount_device: String,
    pub(crate) has_status_socket: bool,
    /// Whether the previous worker has died.
    pub(crate) is_restart: bool,
    /// The sources. The message carries the descriptors of those without a place.
    pub(crate) sources: SourceTable,
    /// Whether there are several sources, or there may be later.
    pub(crate) is_merged: bool,
    /// The holders of the locks that the previous worker left.
    pub(crate) locks: Vec<LockHolder>,
}

/// A change that a supervisor sends to its worker.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Update {
    /// These rules are in force from now on.
    Policy(PolicyFile),
    /// These are the sources from now on.
    Sources(SourceTable),
}

/// A report from a child to its parent.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Event {
    /// The mount can be used.
    Ready,
    /// The mount has failed, and will not become usable.
    Failed(Error),
    /// The sources have changed as the supervisor has asked for.
    SourcesSet,
    /// This holder may have locks on the open file that the message carries.
    Locking(LockHolder),
    /// This holder no longer has locks.
    Unlocked(LockHolder),
}
