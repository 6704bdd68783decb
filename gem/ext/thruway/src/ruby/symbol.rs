//! Symbols, which name methods and constants.

use std::ffi::{CStr, c_long};

use rb_sys::{ID, VALUE};

use super::gvl::Gvl;
use super::string::{RString, symbol_name};

/// A Symbol, represented by its ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Symbol(ID);

impl Symbol {
    /// The Symbol of a literal, which lives as long as the process.
    pub(crate) fn new(_: Gvl, name: &'static CStr) -> Self {
        // SAFETY: the name ends in NUL; interning a literal cannot raise.
        Self(unsafe { rb_sys::rb_intern(name.as_ptr()) })
    }

    /// The Symbol of a UTF-8 name.
    pub(crate) fn of_utf8(_: Gvl, name: &[u8]) -> Self {
        let length = c_long::try_from(name.len()).unwrap_or(0);
        // SAFETY: the function may be called at any time.
        let utf8 = unsafe { rb_sys::rb_utf8_encoding() };
        // SAFETY: the pointer is valid for the length, and Ruby copies.
        Self(unsafe { rb_sys::rb_intern3(name.as_ptr().cast(), length, utf8) })
    }

    /// The name of an object that is a Symbol; `None` for other objects.
    pub(crate) fn name_of(gvl: Gvl, value: VALUE) -> Option<RString> {
        if !is_symbol(gvl, value) {
            return None;
        }
        // SAFETY: the value is a Symbol.
        RString::of(gvl, unsafe { rb_sys::rb_sym2str(value) })
    }

    pub(crate) fn name(self, gvl: Gvl) -> RString {
        symbol_name(gvl, self.0)
    }

    /// The ID, by which Ruby's functions take a Symbol.
    pub(crate) fn id(self) -> ID {
        self.0
    }

    pub(crate) fn value(self) -> VALUE {
        // SAFETY: the ID is a Symbol's.
        unsafe { rb_sys::rb_id2sym(self.0) }
    }
}

/// Whether an object is a Symbol.
pub(crate) fn is_symbol(_: Gvl, value: VALUE) -> bool {
    // SAFETY: any live object may be asked for its type.
    unsafe { rb_sys::RB_SYMBOL_P(value) }
}
