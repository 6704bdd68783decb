//! Arrays.

use std::ffi::c_long;

use rb_sys::{VALUE, ruby_value_type};

use super::gvl::{Gvl, ProtectedCall};
use super::immediate::TRUE;
use super::string::RString;
use super::value::{class_of, has_type, is_exactly, is_frozen};

/// An Array, or an object of a derived class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RArray(VALUE);

impl RArray {
    /// Returns the object as an Array if it is one.
    pub(crate) fn of(gvl: Gvl, value: VALUE) -> Option<Self> {
        has_type(gvl, value, ruby_value_type::RUBY_T_ARRAY).then_some(Self(value))
    }

    /// Returns the object as an Array if its class is exactly `Array` and it has no instance variables.
    pub(crate) fn exactly(gvl: Gvl, value: VALUE) -> Option<Self> {
        // SAFETY: the class is set when Ruby starts, and never changes.
        is_exactly(gvl, value, unsafe { rb_sys::rb_cArray }).then_some(Self(value))
    }

    /// Returns the object as an Array if its class is exactly `Array`.
    pub(crate) fn plain(gvl: Gvl, value: VALUE) -> Option<Self> {
        // SAFETY: the class is set when Ruby starts, and never changes.
        let class = unsafe { rb_sys::rb_cArray };
        let array = Self::of(gvl, value)?;
        (class_of(gvl, value) == class).then_some(array)
    }

    /// Returns the object as an Array, converted by its `to_ary` if it has that method.
    pub(crate) fn convert(ruby: ProtectedCall, value: VALUE) -> Option<Self> {
        // SAFETY: a live object; exceptions are caught further up.
        Self::of(ruby.gvl(), unsafe { rb_sys::rb_check_array_type(value) })
    }

    /// Returns an empty Array with room for `length` elements. May raise NoMemoryError only.
    pub(crate) fn with_room(_: Gvl, length: usize) -> Self {
        let length = c_long::try_from(length).unwrap_or(0);
        // SAFETY: the lock is held.
        Self(unsafe { rb_sys::rb_ary_new_capa(length) })
    }

    /// Adds an element, unless the Array is frozen.
    pub(crate) fn push(self, gvl: Gvl, object: VALUE) {
        if !is_frozen(gvl, self.0) {
            // SAFETY: the value is an Array, and is not frozen.
            unsafe { rb_sys::rb_ary_push(self.0, object) };
        }
    }

    /// Replaces the elements by those of another Array, whose memory is shared then. Does nothing for a frozen Array.
    pub(crate) fn share(self, gvl: Gvl, other: Self) {
        if !is_frozen(gvl, self.0) {
            // SAFETY: both are Arrays, and the first is not frozen.
            unsafe { rb_sys::rb_ary_replace(self.0, other.0) };
        }
    }

    /// Removes all elements, unless the Array is frozen.
    pub(crate) fn clear(self, gvl: Gvl) {
        if !is_frozen(gvl, self.0) {
            // SAFETY: the value is an Array, and is not frozen.
            unsafe { rb_sys::rb_ary_clear(self.0) };
        }
    }

    /// Whether neither Array has changed since one replaced the other. Small Arrays never share memory.
    pub(crate) fn shares_memory_with(self, _: Gvl, other: Self) -> bool {
        // SAFETY: both are Arrays.
        unsafe { rb_sys::rb_ary_shared_with_p(self.0, other.0) == TRUE }
    }

    pub(crate) fn len(self, _: Gvl) -> usize {
        // SAFETY: the value is an Array.
        usize::try_from(unsafe { rb_sys::RARRAY_LEN(self.0) }).unwrap_or(0)
    }

    /// The element at index `place`, if there is one.
    pub(crate) fn get(self, _: Gvl, place: usize) -> Option<VALUE> {
        // SAFETY: no Ruby code runs while the slice lives.
        unsafe { self.elements() }.get(place).copied()
    }

    /// Copies of the Strings among the elements.
    pub(crate) fn strings(self, gvl: Gvl) -> Vec<Vec<u8>> {
        let string = |place| Some(RString::of(gvl, self.get(gvl, place)?)?.to_vec(gvl));
        (0..self.len(gvl)).filter_map(string).collect()
    }

    /// The elements.
    ///
    /// # Safety
    /// The Array stays on the caller's stack, or is referenced from there, and does not change while the slice lives.
    pub(crate) unsafe fn elements<'a>(self) -> &'a [VALUE] {
        // SAFETY: the value is an Array.
        let length = unsafe { rb_sys::RARRAY_LEN(self.0) };
        // SAFETY: as above.
        let start = unsafe { rb_sys::RARRAY_CONST_PTR(self.0) };
        if length == 0 {
            return &[];
        }
        // SAFETY: the pointer and the length are of one Array, unchanged since.
        unsafe { std::slice::from_raw_parts(start, length as usize) }
    }

    pub(crate) fn value(self) -> VALUE {
        self.0
    }
}
