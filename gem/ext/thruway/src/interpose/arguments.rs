//! Arguments of interposed calls.
//!
//! Each type has the layout of the pointer that C code passes, so the replacements can declare it as their parameter.
//! Only C code makes such values, by a call of a libc function. The function's contract is the invariant of the
//! type, and the methods here are safe.

#[cfg(target_os = "linux")]
use std::ffi::c_int;
use std::ffi::{CStr, c_char};

use libc::FILE;

/// A path, or another text, that the caller of a libc function has passed: null, or ending in NUL. The text is valid
/// as long as the call lasts.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(crate) struct TextArgument(*const c_char);

impl TextArgument {
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The bytes before the NUL; none for a null pointer.
    pub(crate) fn bytes(&self) -> &[u8] {
        if self.is_null() {
            return b"";
        }
        // SAFETY: the caller's text ends in NUL, and outlives the call, and so this argument of the call.
        unsafe { CStr::from_ptr(self.0) }.to_bytes()
    }
}

/// A C stream (`FILE *`) that the caller of a libc function has passed.
#[cfg(target_os = "linux")]
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(crate) struct StreamArgument(*mut FILE);

/// A C stream (`FILE *`). Only templates observe streams, and templates exist on Linux only.
#[cfg(not(target_os = "linux"))]
pub(crate) type StreamArgument = *mut FILE;

#[cfg(target_os = "linux")]
impl StreamArgument {
    /// The descriptor that the stream reads from or writes to.
    pub(crate) fn descriptor(self) -> c_int {
        // SAFETY: callers of these functions pass an open stream.
        unsafe { libc::fileno(self.0) }
    }
}
