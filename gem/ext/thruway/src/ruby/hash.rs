//! Hashes.

use std::ffi::{c_int, c_long};

use rb_sys::{VALUE, ruby_value_type};

use super::gvl::{Gvl, ProtectedCall};
use super::immediate::NIL;
use super::string::RString;
use super::symbol::Symbol;
use super::value::{Object, has_type, is_exactly};

/// A Hash, or an object of a derived class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RHash(VALUE);

impl RHash {
    /// Returns the object as a Hash if it is one.
    pub(crate) fn of(gvl: Gvl, value: VALUE) -> Option<Self> {
        has_type(gvl, value, ruby_value_type::RUBY_T_HASH).then_some(Self(value))
    }

    /// Returns the object as a Hash if its class is exactly `Hash` and it has no instance variables.
    pub(crate) fn exactly(gvl: Gvl, value: VALUE) -> Option<Self> {
        // SAFETY: the class is set when Ruby starts, and never changes.
        is_exactly(gvl, value, unsafe { rb_sys::rb_cHash }).then_some(Self(value))
    }

    /// An empty Hash.
    pub(crate) fn new(_: Gvl) -> Self {
        // SAFETY: the lock is held.
        Self(unsafe { rb_sys::rb_hash_new() })
    }

    pub(crate) fn len(self, _: Gvl) -> usize {
        // SAFETY: the value is a Hash.
        unsafe { rb_sys::rb_hash_size_num(self.0) as usize }
    }

    /// Adds pairs to a Hash that was created here. `pairs` holds keys and values in turn. Keys are Strings or simple
    /// values, whose `hash` is Ruby's own.
    pub(crate) fn insert(self, _: Gvl, pairs: &[VALUE]) {
        let count = c_long::try_from(pairs.len() / 2 * 2).unwrap_or(0);
        // SAFETY: the pointer is valid for `count` values.
        unsafe { rb_sys::rb_hash_bulk_insert(count, pairs.as_ptr(), self.0) };
    }

    /// The value of a String key; nil if there is none. The Hash's default is not used.
    pub(crate) fn get(self, _: Gvl, key: RString) -> VALUE {
        // SAFETY: the value is a Hash, and looking up a String runs no Ruby code.
        unsafe { rb_sys::rb_hash_lookup2(self.0, key.value(), NIL) }
    }

    /// The value of a Symbol key; nil if there is none. The Hash's default is not used.
    pub(crate) fn get_symbol(self, _: Gvl, key: Symbol) -> VALUE {
        // SAFETY: as above.
        unsafe { rb_sys::rb_hash_lookup2(self.0, key.value(), NIL) }
    }

    /// Calls `visit` with each pair. `visit` may run Ruby code, and raise.
    pub(crate) fn each_pair<F: FnMut(VALUE, VALUE)>(self, _: ProtectedCall, mut visit: F) {
        unsafe extern "C" fn pair<F: FnMut(VALUE, VALUE)>(
            key: VALUE,
            value: VALUE,
            visit: VALUE,
        ) -> c_int {
            // SAFETY: `each_pair` passes the address of its own argument, which outlives the call.
            let visit = unsafe { &mut *(visit as *mut F) };
            visit(key, value);
            // Continue.
            0
        }
        // SAFETY: the value is a Hash, and the callback fits the argument; exceptions are caught further up.
        unsafe { rb_sys::rb_hash_foreach(self.0, Some(pair::<F>), &raw mut visit as VALUE) };
    }

    /// Calls `visit` with each pair until it returns false. `visit` runs no Ruby code, so the Hash does not change
    /// meanwhile.
    pub(crate) fn each<F: FnMut(VALUE, VALUE) -> bool>(self, _: Gvl, mut visit: F) {
        unsafe extern "C" fn pair<F: FnMut(VALUE, VALUE) -> bool>(
            key: VALUE,
            value: VALUE,
            visit: VALUE,
        ) -> c_int {
            // SAFETY: `each` passes the address of its own argument, which outlives the call.
            let visit = unsafe { &mut *(visit as *mut F) };
            // 0 continues, 1 stops.
            c_int::from(!visit(key, value))
        }
        // SAFETY: the value is a Hash, and the callback fits the argument.
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

/// A Hash that no Ruby code has seen. So it is not frozen, is not being iterated, and has no default procedure.
pub(crate) struct NewHash(RHash);

impl NewHash {
    /// A copy of a Hash.
    pub(crate) fn copy_of(_: Gvl, hash: RHash) -> Self {
        // SAFETY: the value is a Hash.
        Self(RHash(unsafe { rb_sys::rb_hash_dup(hash.0) }))
    }

    /// Sets the value of a String key.
    pub(crate) fn set(&mut self, _: Gvl, key: RString, value: VALUE) {
        // SAFETY: the value is a Hash that can be changed (the type's invariant), and hashing a String does not fail.
        unsafe { rb_sys::rb_hash_aset(self.0.0, key.value(), value) };
    }

    /// The value of a String key; nil if there is none.
    pub(crate) fn get(&self, gvl: Gvl, key: RString) -> VALUE {
        self.0.get(gvl, key)
    }

    /// The Hash, for use by Ruby code.
    pub(crate) fn into_hash(self) -> RHash {
        self.0
    }
}
