//! Makes a mount read its policy again.

use std::path::Path;

use rustix::io::Errno;
use rustix::process::Signal;

use crate::process::Daemon;
use crate::{Error, mounts, status};

/// Makes the mount at `target` read its policy again. Errors in the policy appear in the mount's log.
///
/// # Errors
/// There is no thruway mount at `target`, or its daemon is dead, in another PID namespace, or owned by another user.
pub fn read_policy_again(target: &Path) -> Result<(), Error> {
    let failed = |cause| Error::new("cannot reach the daemon of", target, cause);
    let mounted = mounts::at(target).map_err(failed)?;
    let Some(mounted) = mounted.filter(mounts::MountInfo::is_ours) else {
        return Err(status::not_ours(target));
    };
    let daemon = Daemon::of(&mounted.device).ok_or_else(|| failed(Errno::SRCH.into()))?;
    daemon.signal(Signal::HUP).map_err(|errno| failed(errno.into()))
}
