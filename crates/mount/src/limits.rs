//! Limits of a mount.

use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The time that users of a mount have to finish after it was detached.
pub(crate) const GRACE: Duration = Duration::from_secs(3);

/// The maximum number of descriptors. Each costs the kernel about 1 KiB for a directory entry and an inode.
const DESCRIPTORS_MAX: u64 = 1 << 16;

/// Raises the limit of open descriptors as far as the system allows, and returns the number of descriptors to use.
pub(crate) fn raise() -> usize {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let limit = if raised.is_ok() { maximum } else { getrlimit(Resource::Nofile).current };
    let usable = limit.unwrap_or(u64::MAX).min(DESCRIPTORS_MAX);
    usize::try_from(usable).unwrap_or(usize::MAX)
}
