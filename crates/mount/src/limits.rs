//! Limits of a mount.

use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How long users of the mount may go on after it is detached.
pub(crate) const GRACE: Duration = Duration::from_secs(3);

/// Most descriptors. Each costs the kernel about 1 KiB for a directory entry and an inode.
const DESCRIPTORS_MAX: u64 = 1 << 16;

/// Raises the limit of open descriptors as far as the system allows, and returns how many to use.
pub(crate) fn raise() -> usize {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let limit = if raised.is_ok() { maximum } else { getrlimit(Resource::Nofile).current };
    let usable = limit.unwrap_or(u64::MAX).min(DESCRIPTORS_MAX);
    usize::try_from(usable).unwrap_or(usize::MAX)
}
