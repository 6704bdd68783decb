//! Hashes.

use std::ffi::{c_int, c_long};

use rb_sys::{VALUE, ruby_value_type};

use super::gvl::{Gvl, Protected};
use super::immediate::NIL;
use super::string::RString;
use super::symbol::Symbol;
use super::value::{Object, has_type, is_exactly};

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

    /// The value of a String, nil if there is none. A default is not asked for.
    pub(crate) fn get(self, _: Gvl, key: RString) -> VALUE {
        // SAFETY: it is a Hash, and looking for a String runs no Ruby code.
        unsafe { rb_sys::rb_hash_lookup2(self.0, key.value(), NIL) }
    }

    /// The value of a Symbol, nil if there is none. A default is not asked for.
    pub(crate) fn get_symbol(self, _: Gvl, key: Symbol) -> VALUE {
        // SAFETY: as above.
        unsafe { rb_sys::rb_hash_lookup2(self.0, key.value(), NIL) }
    }

    /// Calls `visit` with each pair; it may run Ruby code, and raise.
    pub(crate) fn each_pair<F: FnMut(VALUE, VALUE)>(self, _: Protected, mut visit: F) {
        unsafe extern "C" fn pair<F: FnMut(VALUE, VALUE)>(
            key: VALUE,
            value: VALUE,
            visit: VALUE,
        ) -> c_int {
            // SAFETY: `each_pair` passes the address of its own argument, which outlives the call.
            let visit = unsafe { &mut *(visit as *mut F) };
            visit(key, value);
            // Go on.
            0
        }
        // SAFETY: it is a Hash, and the callback fits the argument; what it raises is caught.
        unsafe { rb_sys::rb_hash_foreach(self.0, Some(pair::<F>), &raw mut visit as VALUE) };
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

impl Object for RHash {
    fn value(self) -> VALUE {
        self.0
    }
}

/// A Hash that no Ruby code has seen: it is neither frozen nor being walked through, and has no default procedure.
pub(crate) struct NewHash(RHash);

impl NewHash {
    /// A copy of a Hash.
    pub(crate) fn copy_of(_: Gvl, hash: RHash) -> Self {
        // SAFETY: it is a Hash.
        Self(RHash(unsafe { rb_sys::rb_hash_dup(hash.0) }))
    }

    /// Sets the value of a String.
    pub(crate) fn set(&mut self, _: Gvl, key: RString, value: VALUE) {
        // SAFETY: it is a Hash as the type says, and a String cannot fail to hash.
        unsafe { rb_sys::rb_hash_aset(self.0.0, key.value(), value) };
    }

    /// The value of a String, nil if there is none.
    pub(crate) fn get(&self, gvl: Gvl, key: RString) -> VALUE {
        self.0.get(gvl, key)
    }

    /// The Hash, for Ruby code to see.
    pub(crate) fn into_hash(self) -> RHash {
        self.0
    }
}
