//! Encodings of Strings, by their index.

use std::ffi::c_int;

use super::gvl::{Gvl, ProtectedCall};
use super::string::RString;

/// A Ruby encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Encoding(c_int);

impl Encoding {
    pub(crate) fn of(_: Gvl, string: RString) -> Self {
        // SAFETY: the value is a String.
        Self(unsafe { rb_sys::rb_enc_get_index(string.value()) })
    }

    /// The encoding of file names.
    pub(crate) fn of_file_names(_: Gvl) -> Self {
        // SAFETY: the function may be called at any time.
        Self(unsafe { rb_sys::rb_filesystem_encindex() })
    }

    pub(crate) fn us_ascii(_: Gvl) -> Self {
        // SAFETY: the function may be called at any time.
        Self(unsafe { rb_sys::rb_usascii_encindex() })
    }

    /// The encoding that both Strings are compatible with. Raises if there is none.
    pub(crate) fn common(_: ProtectedCall, one: RString, other: RString) -> Self {
        // SAFETY: both are Strings; exceptions are caught further up.
        let common = unsafe { rb_sys::rb_enc_check(one.value(), other.value()) };
        // SAFETY: the value is an encoding of Ruby's.
        Self(unsafe { rb_sys::rb_enc_to_index(common) })
    }

    /// Returns a new String with a copy of the bytes.
    pub(crate) fn string(self, gvl: Gvl, bytes: &[u8]) -> RString {
        let string = RString::new(gvl, bytes);
        // SAFETY: the String was created just now, and the index is an encoding's.
        unsafe { rb_sys::rb_enc_associate_index(string.value(), self.0) };
        string
    }
}
