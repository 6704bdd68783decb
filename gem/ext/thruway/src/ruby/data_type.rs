//! Rust values that are owned by Ruby objects.

use std::ffi::{CStr, c_void};
use std::marker::PhantomData;

use rb_sys::{VALUE, rb_data_type_t};

use super::gvl::{Gvl, ProtectedCall};
use super::value::Object;

/// A value that a Ruby object owns.
pub(crate) trait ObjectData {
    /// Marks the objects that the value holds. The collector may call this method in any allocation by Ruby.
    fn mark(&self, marker: Marker);
}

/// Proof that Ruby's collector is marking objects.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Marker(PhantomData<*const ()>);

impl Marker {
    /// Marks an object, and so keeps the collector from freeing or moving the object.
    pub(crate) fn mark(self, value: VALUE) {
        // SAFETY: the collector is marking; `value` is live, since every collection so far has marked the value.
        unsafe { rb_sys::rb_gc_mark(value) };
    }
}

/// The collector's functions for objects of a class, each of which owns a `T`.
pub(crate) struct DataType<T> {
    raw: rb_data_type_t,
    value: PhantomData<fn() -> T>,
}

// SAFETY: the type never changes, and its functions may be called by any thread that collects.
unsafe impl<T> Sync for DataType<T> {}

impl<T: ObjectData + 'static> DataType<T> {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        let function = rb_sys::rb_data_type_struct__bindgen_ty_1 {
            dmark: Some(mark::<T>),
            dfree: Some(free::<T>),
            dsize: None,
            dcompact: None,
            reserved: [std::ptr::null_mut(); 1],
        };
        let (parent, data) = (std::ptr::null(), std::ptr::null_mut());
        let raw =
            rb_data_type_t { wrap_struct_name: name.as_ptr(), function, parent, data, flags: 0 };
        Self { raw, value: PhantomData }
    }

    /// Returns an object of `class` that owns a value. Ruby code cannot allocate objects of such a class.
    pub(crate) fn wrap<C: Object>(&'static self, _: Gvl, class: C, value: Box<T>) -> VALUE {
        let value = Box::into_raw(value).cast();
        // SAFETY: the object owns the value from here on.
        unsafe { rb_sys::rb_data_typed_object_wrap(class.value(), value, &raw const self.raw) }
    }

    /// Whether an object owns a value of this type.
    pub(crate) fn is_of(&'static self, _: Gvl, object: VALUE) -> bool {
        // SAFETY: any live object may be checked.
        unsafe { rb_sys::rb_typeddata_is_kind_of(object, &raw const self.raw) != 0 }
    }

    /// The value of an object, which stays on the caller's stack. Raises TypeError for an object of another type.
    pub(crate) fn get<'a>(&'static self, _: ProtectedCall, object: &'a VALUE) -> &'a T {
        // SAFETY: any live object may be checked; exceptions are caught further up.
        let value = unsafe { rb_sys::rb_check_typeddata(*object, &raw const self.raw) };
        // SAFETY: the type was checked, so `wrap` stored this pointer, and the object keeps the value
        // alive.
        unsafe { &*value.cast::<T>() }
    }
}

unsafe extern "C" fn mark<T: ObjectData>(value: *mut c_void) {
    // SAFETY: `wrap` stored this pointer, and no exclusive reference to the value exists.
    let value = unsafe { &*value.cast::<T>() };
    value.mark(Marker(PhantomData));
}

unsafe extern "C" fn free<T>(value: *mut c_void) {
    // SAFETY: `wrap` stored this pointer, and its object is unreachable.
    drop(unsafe { Box::from_raw(value.cast::<T>()) });
}
