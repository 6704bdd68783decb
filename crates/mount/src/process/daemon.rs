//! Signals the processes of a mount from another process. Pidfds guarantee that no later process with the same id gets
//! a signal.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::status;

/// The supervisor of a mount, if it is alive, and its workers.
pub(crate) struct Daemon {
    /// The supervisor comes first, if it is alive. A worker ends with the supervisor, unless the worker is stopped.
    processes: Vec<OwnedFd>,
}

impl Daemon {
    /// Finds the processes of a mount. Returns `None` if all have died or none is visible to this process.
    pub(crate) fn of(mount_device: &str) -> Option<Self> {
        let supervisor = status::listener(mount_device).ok().flatten();
        let processes = match supervisor.and_then(with_children) {
            Some(processes) => processes,
            None => orphans(mount_device),
        };
        (!processes.is_empty()).then_some(Self { processes })
    }

    /// Signals the first process, unless it is gone.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Errno> {
        self.processes.first().map_or(Ok(()), |process| send(process, signal))
    }

    /// Kills all processes at once.
    pub(crate) fn kill(&self) -> Result<(), Errno> {
        // The supervisor comes first, since it would restart a worker. If a process cannot be killed, the others still
        // are.
        let killed: Vec<_> =
            self.processes.iter().map(|process| send(process, Signal::KILL)).collect();
        killed.into_iter().collect()
    }

    /// Whether all processes end within this time.
    pub(crate) fn ends_within(&self, timeout: Duration) -> Result<bool, Errno> {
        let deadline = Instant::now() + timeout;
        for process in &self.processes {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).ok();
            if poll(&mut [PollFd::new(process, PollFlags::IN)], left.as_ref())? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Returns a supervisor and its workers, or `None` if the supervisor is dead.
fn with_children(pid: i32) -> Option<Vec<OwnedFd>> {
    let supervisor = open(pid)?;
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    let workers = children.split_whitespace().filter_map(|child| open(child.parse().ok()?));
    Some([supervisor].into_iter().chain(workers).collect())
}

/// Returns workers whose supervisor is dead. A stopped worker does not reply, but the kernel lists the connections that
/// a process has open.
fn orphans(mount_device: &str) -> Vec<OwnedFd> {
    let Some((_, connection)) = mount_device.split_once(':') else { return Vec::new() };
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| open_if(pid, |info| is_of_connection(info, connection))).collect()
}

/// Whether the kernel's `fdinfo` of a descriptor names this connection. Always false on older kernels, which name none.
fn is_of_connection(info: &str, connection: &str) -> bool {
    let mut named = info.lines().filter_map(|line| line.strip_prefix("fuse_connection:"));
    named.any(|name| name.trim() == connection)
}

/// Returns the process, if it has the device open. Without that check, the id might belong to an unrelated later
/// process.
fn open(pid: i32) -> Option<OwnedFd> {
    open_if(pid, |_| true)
}

/// Returns the process, if it has the device open and the descriptor's `fdinfo` passes the check.
fn open_if(pid: i32, matches_info: impl Fn(&str) -> bool) -> Option<OwnedFd> {
    let process = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    let mut descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
    let has_device = descriptors.any(|entry| {
        let info = Path::new("/proc").join(pid.to_string()).join("fdinfo").join(entry.file_name());
        fs::read_link(entry.path()).is_ok_and(|name| name == Path::new("/dev/fuse"))
            && matches_info(&fs::read_to_string(info).unwrap_or_default())
    });
    has_device.then_some(process)
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
    fn a_process_without_the_device_serves_no_mount() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(open(own).is_none());
        let Ok(_device) = fs::File::open("/dev/fuse") else {
            return thruway_testing::skipped("no /dev/fuse");
        };
        assert!(open(own).is_some());
        assert!(open_if(own, |info| is_of_connection(info, "0")).is_none());
    }

    #[test]
    fn a_descriptor_is_of_the_connection_that_the_kernel_names() {
        assert!(is_of_connection("pos:\t0\nfuse_connection:\t39\n", "39"));
        assert!(!is_of_connection("pos:\t0\nfuse_connection:\t39\n", "3"));
        assert!(!is_of_connection("pos:\t39\n", "39"));
    }
}
