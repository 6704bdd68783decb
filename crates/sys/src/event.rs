//! Event objects of Windows.

use std::io;
use std::os::windows::io::{FromRawHandle, OwnedHandle};
use std::ptr;

use windows_sys::Win32::System::Threading::CreateEventW;

/// Creates an event without a name, which is never set.
///
/// # Errors
/// Any error of the system.
pub fn create() -> io::Result<OwnedHandle> {
    // SAFETY: all pointers may be null.
    let handle = unsafe { CreateEventW(ptr::null(), 1, 0, ptr::null()) };
    if handle.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call made this handle, and it has no other owner.
    Ok(unsafe { OwnedHandle::from_raw_handle(handle) })
}
