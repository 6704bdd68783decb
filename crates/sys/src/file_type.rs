//! The type of an open file of Windows, by its handle or its descriptor.

use std::ffi::{c_int, c_void};

use windows_sys::Win32::Storage::FileSystem::{FILE_TYPE_DISK, GetFileType};

unsafe extern "C" {
    fn _get_osfhandle(descriptor: c_int) -> isize;
}

/// Whether a handle, given as a number, belongs to a file on a disk, rather than to a pipe, a console or a socket.
/// Returns `false` for an invalid handle.
#[must_use]
pub fn is_on_disk(handle: isize) -> bool {
    // SAFETY: any value may be passed.
    unsafe { GetFileType(handle as *mut c_void) == FILE_TYPE_DISK }
}

/// As [`is_on_disk`], for an open descriptor of the C library.
#[must_use]
pub fn is_descriptor_on_disk(descriptor: c_int) -> bool {
    // SAFETY: the C library checks the number.
    let handle = unsafe { _get_osfhandle(descriptor) };
    is_on_disk(handle)
}

#[cfg(test)]
mod tests {
    use std::os::windows::io::AsRawHandle;

    use super::*;

    #[test]
    fn a_file_is_distinguished_from_other_objects() {
        let file = tempfile::tempfile().unwrap();
        assert!(is_on_disk(file.as_raw_handle() as isize));
        assert!(!is_on_disk(crate::event::create().unwrap().as_raw_handle() as isize));
    }
}
