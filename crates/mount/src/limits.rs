//! How much a mount may have, and how long its users.

use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How long users of the mount have to finish when it is taken away.
pub(crate) const GRACE: Duration = Duration::from_secs(3);

/// More would only be memory of the kernel: an open directory entry and inode are about 1 KiB.
const DESCRIPTORS_MAX: u64 = 1 << 16;

/// Allows as many descriptors as the system lets us, and says how many we use.
pub(crate) fn raise() -> usize {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let limit = if raised.is_ok() { maximum } else { getrlimit(Resource::Nofile).current };
    let usable = limit.unwrap_or(u64::MAX).min(DESCRIPTORS_MAX);
    usize::try_from(usable).unwrap_or(usize::MAX)
}
