//! What a call of the C library said.

use std::io;

/// `errno`, if the call said that it failed.
pub(crate) fn check(result: i32) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
