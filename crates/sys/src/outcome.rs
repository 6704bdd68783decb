//! Results of calls to the C library.

use std::io;

/// Returns the current `errno` as an error if `result` is -1, the C library's mark of failure.
pub(crate) fn check(result: i32) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
