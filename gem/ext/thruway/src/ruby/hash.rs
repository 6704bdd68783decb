//! Hashes.

use std::ffi::{c_int, c_long};

use rb_sys::{VALUE, ruby_value_type};

use super::gvl::Gvl;
use super::value::{has_type, is_exactly};

/// A Hash, or an object of a class derived from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RHash(VALUE);

impl RHash {
    /// The object, if it is a Hash.
    pub(crate) fn of(gvl: Gvl, value: VALUE) -> Option<Self> {
        has_type(gvl, value, ruby_value_type::RUBY_T_HASH).then_some(Self(value))
    }

    /// The object, if it is nothing more than a Hash.
    pub(crate) fn exactly(gvl: Gvl, value: VALUE) -> Option<Self> {
        // SAFETY: set when Ruby starts, and never again.
        is_exactly(gvl, value, unsafe { rb_sys::rb_cHash }).then_some(Self(value))
    }

    /// An empty Hash.
    pub(crate) fn new(_: Gvl) -> Self {
        // SAFETY: the lock is held.
        Self(unsafe { rb_sys::rb_hash_new() })
    }

    pub(crate) fn len(self, _: Gvl) -> usize {
        // SAFETY: it is a Hash.
        unsafe { rb_sys::rb_hash_size_num(self.0) as usize }
    }

    /// Adds pairs, keys and values in turn, to a Hash that was made here. Keys are Strings or simple, whose `hash` is
    /// Ruby's own.
    pub(crate) fn insert(self, _: Gvl, pairs: &[VALUE]) {
        let count = c_long::try_from(pairs.len() / 2 * 2).unwrap_or(0);
        // SAFETY: the pointer is valid for that many.
        unsafe { rb_sys::rb_hash_bulk_insert(count, pairs.as_ptr(), self.0) };
    }

    /// Visits pairs as long as `visit` says so. It runs no Ruby code, so that the Hash does not change meanwhile.
    pub(crate) fn each<F: FnMut(VALUE, VALUE) -> bool>(self, _: Gvl, mut visit: F) {
        unsafe extern "C" fn pair<F: FnMut(VALUE, VALUE) -> bool>(
            key: VALUE,
            value: VALUE,
            visit: VALUE,
        ) -> c_int {
            // SAFETY: `each` passes the address of its own argument, which outlives the call.
            let visit = unsafe { &mut *(visit as *mut F) };
            // Go on is 0, stop is 1.
            c_int::from(!visit(key, value))
        }
        // SAFETY: it is a Hash, and the callback fits the argument.
        unsafe { rb_sys::rb_hash_foreach(self.0, Some(pair::<F>), &raw mut visit as VALUE) };
    }

    pub(crate) fn value(self) -> VALUE {
        self.0
    }
}
