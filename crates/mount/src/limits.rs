//! Limits of a mount.

use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use thruway_sys::signal::{ignore, number};

/// The time that users of a mount have to finish after it was detached.
pub(crate) const GRACE: Duration = Duration::from_secs(3);

/// The maximum number of descriptors. Each costs the kernel about 1 KiB for a directory entry and an inode.
const DESCRIPTORS_MAX: u64 = 1 << 16;

/// Raises the limit of open descriptors and that of the size of files as far as the system allows, and returns the
/// number of descriptors to use. The kernel holds each program to its own limit before its writes arrive here.
pub(crate) fn raise() -> usize {
    // Without the signal, what exceeds the limit fails with an error. A broken lease is asked for, not reported.
    let _ = ignore(&[number::SIGXFSZ, number::SIGIO]);
    let unlimited = Rlimit { current: None, maximum: None };
    if setrlimit(Resource::Fsize, unlimited).is_err() {
        let Rlimit { maximum, .. } = getrlimit(Resource::Fsize);
        let _ = setrlimit(Resource::Fsize, Rlimit { current: maximum, maximum });
    }
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let limit = if raised.is_ok() { maximum } else { getrlimit(Resource::Nofile).current };
    let usable = limit.unwrap_or(u64::MAX).min(DESCRIPTORS_MAX);
    usize::try_from(usable).unwrap_or(usize::MAX)
}
