//! Keeps traced programs running after the tracer has died.
//!
//! The seccomp filter of a program outlives the tracer. A call that the filter stops fails with `ENOSYS` if there is no
//! tracer. The recorder therefore takes over as the tracer, within much less than a millisecond. Only calls that do not
//! go through the stub can fail during that time. Afterwards the command runs to its end without being recorded.

use thruway_sys::process::{self, Change, Wait};
use thruway_sys::ptrace::{self, Resume, event};

use crate::shared_rings::SharedRings;

/// Attaches to all running threads and resumes them at each stop until the last one has ended. Returns the
/// end of `command` if it was seen here.
pub(crate) fn guard(rings: &SharedRings, command: i32) -> Option<Change> {
    let largest = std::fs::read_to_string("/proc/sys/kernel/pid_max");
    let largest = largest.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(1 << 22);
    for thread in rings.threads(largest) {
        // Threads that have ended in the meantime cannot be attached to.
        let _ = ptrace::seize(thread);
    }
    let mut end = None;
    while let Ok(Some((thread, change))) = process::wait(Wait::Any) {
        match change {
            Change::Stopped { signal, event } => {
                // A failure means that the thread was killed in the meantime.
                let _ = resume(thread, signal, event);
            }
            Change::Continued => {}
            _ if thread == command => end = Some(change),
            _ => {}
        }
    }
    end
}

fn resume(thread: i32, signal: i32, event: i32) -> std::io::Result<()> {
    match event {
        event::STOP if signal != ptrace::TRAP => ptrace::resume(thread, Resume::Listen, 0),
        0 if signal != ptrace::SYSCALL_STOP => ptrace::resume(thread, Resume::Run, signal),
        _ => ptrace::resume(thread, Resume::Run, 0),
    }
}
