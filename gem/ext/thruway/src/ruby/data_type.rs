//! Values of Rust's that Ruby objects own.

use std::ffi::{CStr, c_void};
use std::marker::PhantomData;

use rb_sys::{VALUE, rb_data_type_t};

use super::gvl::{Gvl, Protected};
use super::value::Object;

/// A value that an object owns.
pub(crate) trait Wrapped {
    /// Marks the objects that the value holds. It is called in the middle of any allocation of Ruby's.
    fn mark(&self, marker: Marker);
}

/// Proof that Ruby's collector marks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Marker(PhantomData<*const ()>);

impl Marker {
    /// Marks an object, which then neither ends nor moves.
    pub(crate) fn mark(self, value: VALUE) {
        // SAFETY: the collector marks, and `value` is live, because it was marked ever since.
        unsafe { rb_sys::rb_gc_mark(value) };
    }
}

/// How Ruby's collector deals with a class's objects, each of which owns a `T`.
pub(crate) struct DataType<T> {
    raw: rb_data_type_t,
    value: PhantomData<fn() -> T>,
}

// SAFETY: it is never changed, and the functions in it may be called by any thread that collects.
unsafe impl<T> Sync for DataType<T> {}

impl<T: Wrapped + 'static> DataType<T> {
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

    /// An object of `class`, whose objects Ruby cannot allocate, that owns a value.
    pub(crate) fn wrap<C: Object>(&'static self, _: Gvl, class: C, value: Box<T>) -> VALUE {
        let value = Box::into_raw(value).cast();
        // SAFETY: the object owns the value from here on.
        unsafe { rb_sys::rb_data_typed_object_wrap(class.value(), value, &raw const self.raw) }
    }

    /// The value of an object, which stays on the caller's stack; raises TypeError for another object.
    pub(crate) fn get<'a>(&'static self, _: Protected, object: &'a VALUE) -> &'a T {
        // SAFETY: any live object may be checked; what it raises is caught.
        let value = unsafe { rb_sys::rb_check_typeddata(*object, &raw const self.raw) };
        // SAFETY: the type was checked, so it is what `wrap` took, and the object keeps it alive.
        unsafe { &*value.cast::<T>() }
    }
}

unsafe extern "C" fn mark<T: Wrapped>(value: *mut c_void) {
    // SAFETY: the pointer is what `wrap` made, and no exclusive reference to it exists.
    let value = unsafe { &*value.cast::<T>() };
    value.mark(Marker(PhantomData));
}

unsafe extern "C" fn free<T>(value: *mut c_void) {
    // SAFETY: the pointer is what `wrap` made, and its object is unreachable.
    drop(unsafe { Box::from_raw(value.cast::<T>()) });
}
