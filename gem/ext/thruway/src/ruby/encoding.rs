//! Encodings of Strings, by their numbers.

use std::ffi::c_int;

use super::gvl::{Gvl, Protected};
use super::string::RString;

/// An encoding of Ruby's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Encoding(c_int);

impl Encoding {
    pub(crate) fn of(_: Gvl, string: RString) -> Self {
        // SAFETY: it is a String.
        Self(unsafe { rb_sys::rb_enc_get_index(string.value()) })
    }

    /// That of file names.
    pub(crate) fn of_file_names(_: Gvl) -> Self {
        // SAFETY: may be called at any time.
        Self(unsafe { rb_sys::rb_filesystem_encindex() })
    }

    pub(crate) fn us_ascii(_: Gvl) -> Self {
        // SAFETY: may be called at any time.
        Self(unsafe { rb_sys::rb_usascii_encindex() })
    }

    /// The encoding that both Strings can be written in; raises if there is none.
    pub(crate) fn common(_: Protected, one: RString, other: RString) -> Self {
        // SAFETY: both are Strings; what it raises is caught.
        let common = unsafe { rb_sys::rb_enc_check(one.value(), other.value()) };
        // SAFETY: it is an encoding of Ruby's.
        Self(unsafe { rb_sys::rb_enc_to_index(common) })
    }

    /// A new String with a copy of the bytes.
    pub(crate) fn string(self, gvl: Gvl, bytes: &[u8]) -> RString {
        let string = RString::new(gvl, bytes);
        // SAFETY: it is a String that was made just now, and the number is an encoding's.
        unsafe { rb_sys::rb_enc_associate_index(string.value(), self.0) };
        string
    }
}
