//! Starts this program again as a process of a mount.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::channel::Channel;

/// The hidden verb with which the binary runs as a process of a mount.
pub const INNER_VERB: &str = "mount-process";

/// Starts the process. A detached process has no standard output.
pub(crate) fn spawn(detached: bool) -> io::Result<(Channel, Child)> {
    let (ours, theirs) = Channel::pair()?;
    let mut command = Command::new(Path::new("/proc/self/exe"));
    command.arg0("thruway").arg(INNER_VERB).current_dir("/").stdin(OwnedFd::from(theirs));
    if detached {
        command.stdout(Stdio::null()).stderr(Stdio::null());
    }
    Ok((ours, command.spawn()?))
}
