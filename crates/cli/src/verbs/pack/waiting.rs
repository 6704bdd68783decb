//! Waiting for a command that makes a pack.

use std::process::ExitStatus;

use thruway_spawn::Command;

use crate::output::Failure;

/// Waits for the command, even if signals arrive meanwhile, because its remains have to be removed. The terminal
/// sends its signals to the command as well; signals that are sent to this process alone are forwarded.
#[cfg(target_os = "linux")]
pub(super) fn status(command: &Command) -> Result<ExitStatus, Failure> {
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::process::{Pid, Signal, kill_process};
    use thruway_sys::signal::BlockedSignals;

    let failed = |error| Failure::new(format_args!("cannot wait for the command: {error}"));
    let mut child = command.spawn().map_err(Failure::new)?;
    let signals = [Signal::INT, Signal::QUIT, Signal::TERM, Signal::HUP, Signal::CHILD];
    let signals = BlockedSignals::new(&signals).map_err(failed)?;
    loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Ok(status);
        }
        let mut ready = [PollFd::new(&signals, PollFlags::IN)];
        let _ = poll(&mut ready, None);
        while let Some(signal) = signals.next().map_err(failed)? {
            let process = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            if let (Some(process), Signal::TERM | Signal::HUP) = (process, signal) {
                let _ = kill_process(process, signal);
            }
        }
    }
}

/// Waits for the command on systems where signals cannot be read. If a signal ends this build, the next build removes
/// what this one leaves behind.
#[cfg(not(target_os = "linux"))]
pub(super) fn status(command: &Command) -> Result<ExitStatus, Failure> {
    command.status().map_err(Failure::new)
}
