//! What is left to do when the tracer has died: let the programs through.
//!
//! Their filter stays, and a stopped call fails without a tracer. The recorder attaches in the
//! tracer's place, which takes it well below a millisecond. Until then, calls that the stub does not
//! make can fail with `ENOSYS`. Afterwards the command goes on to its end, unnoted.

use thruway_sys::process::{self, Change, Wait};
use thruway_sys::ptrace::{self, Resume, event};

use crate::shared_rings::SharedRings;

/// Attaches to all that is still running, and lets everything through until the last one ends. Returns
/// with the end of `command`, if it came now.
pub(crate) fn guard(rings: &SharedRings, command: i32) -> Option<Change> {
    let largest = std::fs::read_to_string("/proc/sys/kernel/pid_max");
    let largest = largest.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(1 << 22);
    for thread in rings.threads(largest) {
        // Those that have ended meanwhile cannot be attached to.
        let _ = ptrace::seize(thread);
    }
    let mut end = None;
    while let Ok(Some((thread, change))) = process::wait(Wait::Any) {
        match change {
            Change::Stopped { signal, event } => {
                // Killed meanwhile if it fails.
                let _ = pass(thread, signal, event);
            }
            Change::Continued => {}
            _ if thread == command => end = Some(change),
            _ => {}
        }
    }
    end
}

fn pass(thread: i32, signal: i32, event: i32) -> std::io::Result<()> {
    match event {
        event::STOP if signal != ptrace::TRAP => ptrace::resume(thread, Resume::Listen, 0),
        0 if signal != ptrace::SYSCALL_STOP => ptrace::resume(thread, Resume::Run, signal),
        _ => ptrace::resume(thread, Resume::Run, 0),
    }
}
