//! The rights of this process to mount.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use rustix::thread::{CapabilitySet, capabilities};

/// The name that the kernel gives the initial user namespace.
const INITIAL_USER_NAMESPACE: &str = "user:[4026531837]";

/// The flags that the mounts of this process can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MountRights {
    /// Whether set-user-id programs can gain their owner's rights.
    pub suid: bool,
    /// Whether device nodes can work.
    pub dev: bool,
}

impl MountRights {
    /// Returns the rights of this process.
    #[must_use]
    pub fn of_this_process() -> Self {
        let suid = may_mount();
        Self { suid, dev: suid && is_in_initial_user_namespace() }
    }
}

/// Whether this process may call mount(2).
pub(crate) fn may_mount() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// Whether the rights of this process hold outside of a container. A kernel without user namespaces names none.
pub(crate) fn is_in_initial_user_namespace() -> bool {
    let name = fs::read_link("/proc/self/ns/user");
    name.map_or_else(
        |error| error.kind() == ErrorKind::NotFound,
        |name| name == Path::new(INITIAL_USER_NAMESPACE),
    )
}
