//! The messages between the processes of a mount.
//!
//! The user starts the **launcher**. The **supervisor** mounts, and holds everything that must outlive a crash: the
//! connection, the sources, and the table of inodes. The **worker** serves the kernel's requests.

use serde::{Deserialize, Serialize};

use crate::lock_holder::LockHolder;
use crate::sources::Place;
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
    /// The place of each source when the mount was made, or `None` if the message carries the source's descriptor.
    pub(crate) places: Vec<Option<Place>>,
    /// The holders of the locks that the previous worker left.
    pub(crate) locks: Vec<LockHolder>,
}

/// A report from a child to its parent.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Event {
    /// The mount can be used.
    Ready,
    /// The mount has failed, and will not become usable.
    Failed(Error),
    /// This holder may have locks on the open file that the message carries.
    Locking(LockHolder),
    /// This holder no longer has locks.
    Unlocked(LockHolder),
}
