//! The processes of a mount, as another process sees them: signals go to them and to nobody who got their number since.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::status;

/// The process that keeps a mount alive, and its worker.
pub(crate) struct Daemon {
    supervisor: OwnedFd,
    /// It ends with the supervisor, unless it is stopped.
    workers: Vec<OwnedFd>,
}

impl Daemon {
    /// `None` if it has died or cannot be seen from here.
    pub(crate) fn of(mount_device: &str) -> Option<Self> {
        let pid = status::listener(mount_device).ok().flatten()?;
        let supervisor = open(pid)?;
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let children = children.unwrap_or_default();
        let workers = children.split_whitespace().filter_map(|child| open(child.parse().ok()?));
        Some(Self { workers: workers.collect(), supervisor })
    }

    /// A process that is gone needs no signal.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Errno> {
        send(&self.supervisor, signal)
    }

    /// Ends all of them at once, whatever they do.
    pub(crate) fn kill(&self) -> Result<(), Errno> {
        // Another worker would be started for one that ends first.
        let all = std::iter::once(&self.supervisor).chain(&self.workers);
        // One that cannot be killed keeps none of the others alive.
        let killed: Vec<_> = all.map(|process| send(process, Signal::KILL)).collect();
        killed.into_iter().collect()
    }

    /// Whether all of them are gone within that time.
    pub(crate) fn ends_within(&self, patience: Duration) -> Result<bool, Errno> {
        let deadline = Instant::now() + patience;
        for process in std::iter::once(&self.supervisor).chain(&self.workers) {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).ok();
            if poll(&mut [PollFd::new(process, PollFlags::IN)], left.as_ref())? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The process, if it is one of a mount: it has the device open. Who died before may have left its number to another.
fn open(pid: i32) -> Option<OwnedFd> {
    let process = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let mut names = descriptors.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    names.any(|name| name == Path::new("/dev/fuse")).then_some(process)
}

fn send(process: &OwnedFd, signal: Signal) -> Result<(), Errno> {
    match pidfd_send_signal(process, signal) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_serves_no_mount_is_none_of_ours() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(open(own).is_none());
        let Ok(_device) = fs::File::open("/dev/fuse") else {
            return thruway_testing::skipped("no /dev/fuse");
        };
        assert!(open(own).is_some());
    }
}
