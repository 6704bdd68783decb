//! The messages between the processes of one mount.
//!
//! The user starts the **launcher**. The **supervisor** mounts, and holds everything that must outlive a crash: the
//! connection, the sources, the table of inodes. The **worker** serves the kernel's requests.

use serde::{Deserialize, Serialize};

use crate::lock_holder::LockHolder;
use crate::sources::Place;
use crate::{Error, Plan};

/// What a process that was just started shall do, as its parent commands.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Command {
    /// Mount, and keep a worker running.
    Supervise(Plan),
    /// Serve requests.
    Serve(ServeCommand),
}

/// What a worker needs. Descriptors come along: the memory, the status socket if there is one, sources that are not
/// followed by their paths, the locked files, and the connection with its clones.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ServeCommand {
    pub(crate) plan: Plan,
    /// `major:minor` of the mount.
    pub(crate) mount_device: String,
    pub(crate) has_status_socket: bool,
    /// The worker before this one has died.
    pub(crate) is_restart: bool,
    /// Where each source was when the mount was made. `None`: its descriptor comes along.
    pub(crate) places: Vec<Option<Place>>,
    /// The holders of the locks that it has left.
    pub(crate) locks: Vec<LockHolder>,
}

/// What a child tells its parent.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Event {
    /// The mount can be used.
    Ready,
    /// It never will be.
    Failed(Error),
    /// This holder may have locks on the open file that comes along.
    Locking(LockHolder),
    /// This holder has no locks any more.
    Unlocked(LockHolder),
}
