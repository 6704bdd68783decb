//! Arguments of interposed calls of Windows.
//!
//! Only C code makes such values, by a call of a function of Windows. The function's contract is the invariant of the
//! type, and the methods here are safe.

use std::ffi::{CStr, c_char, c_void};

/// A handle of a kernel object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Handle(*mut c_void);

impl Handle {
    /// The handle of a file that was not opened, and of a search without a result.
    pub(crate) const INVALID: Self = Self(std::ptr::without_provenance_mut(usize::MAX));

    pub(crate) fn of(address: *mut c_void) -> Self {
        Self(address)
    }

    /// The handle as a number, the form that `thruway_sys` expects.
    pub(crate) fn number(self) -> isize {
        self.0 as isize
    }
}

/// The name of a function that is looked up in a DLL, or its number there.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(crate) struct ProcedureName(*const c_char);

impl ProcedureName {
    /// Whether this is a name, and equal to `name`.
    pub(crate) fn is(self, name: &CStr) -> bool {
        // A number is passed as an address of the first 64 KiB, which no program has.
        if self.0.addr() <= usize::from(u16::MAX) {
            return false;
        }
        // SAFETY: the caller has passed a text that ends in NUL.
        unsafe { CStr::from_ptr(self.0) == name }
    }
}

/// A path in UTF-16 that the caller has passed: null, or ending in a zero. The text is valid as long as the call lasts.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(crate) struct WideArgument(*const u16);

impl WideArgument {
    /// The units before the zero; none for a null pointer.
    pub(crate) fn units(&self) -> &[u16] {
        if self.0.is_null() {
            return &[];
        }
        let mut length = 0;
        // SAFETY: the text ends in a zero, at which the loop stops.
        while unsafe { self.0.wrapping_add(length).read() } != 0 {
            length += 1;
        }
        // SAFETY: the text has that many units, and outlives the call, and so this argument of the call.
        unsafe { std::slice::from_raw_parts(self.0, length) }
    }
}

/// The place for a file's information (`BY_HANDLE_FILE_INFORMATION`), whose first word is the attributes.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(crate) struct InformationArgument(*mut [u32; 13]);

impl InformationArgument {
    /// Writes the information of a file of which the attributes alone are known.
    pub(crate) fn write(self, attributes: u32) {
        let mut information = [0; 13];
        information[0] = attributes;
        // SAFETY: the caller has passed a place for the result.
        unsafe { self.0.write(information) };
    }
}

/// How a file is opened: the arguments of `CreateFileW` but the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpenArguments {
    pub(crate) access: u32,
    pub(crate) sharing: u32,
    pub(crate) has_security: bool,
    pub(crate) disposition: u32,
    pub(crate) flags: u32,
    pub(crate) has_template: bool,
}
