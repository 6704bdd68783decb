//! Calls by which this process may learn, on Windows, that another process has changed something.
//!
//! As on Linux, the boot's knowledge of folders is valid until the process may have learned of a change: when libruby
//! reads from anything but a file on a disk, waits for long, uses a socket, starts a child, or asks whether one has
//! ended.

use std::time::{Duration, Instant};

use super::current;

/// Threads that hand over the interpreter lock wait for a shorter time, since Ruby takes the lock away after 100 ms.
const WAIT_MIN: Duration = Duration::from_millis(200);

/// Called after libruby may have heard something from outside this process.
pub(crate) fn heard() {
    if let Some(boot) = current::boot() {
        boot.files.invalidate();
    }
}

/// Called after libruby has waited since `begin` for an object of any kind. What else was waited for than another
/// thread is observed by the call that follows, such as a read.
pub(crate) fn waited_since(begin: Instant) {
    if begin.elapsed() >= WAIT_MIN {
        heard();
    }
}

/// Called when libruby has started a child, or has asked for the exit code of one: a child may change anything.
pub(crate) fn met_child() {
    if let Some(boot) = current::boot() {
        boot.files.invalidate_pack();
    }
}
