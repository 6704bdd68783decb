//! Classes that are made in Rust, as Ruby has them.

use std::ffi::{CStr, c_void};

use rb_sys::{VALUE, rb_data_type_t};

use super::gvl::{Gvl, Raised};

/// How Ruby's collector deals with the values behind a class's objects.
pub(super) struct DataType(rb_data_type_t);

// SAFETY: it is never changed, and the functions in it may be called by any thread that collects.
unsafe impl Sync for DataType {}

/// What the collector calls with a value.
type Visit = unsafe extern "C" fn(*mut c_void);

impl DataType {
    /// `mark` tells of the objects that a value holds, `free` ends it.
    pub(super) const fn new(name: &'static CStr, mark: Option<Visit>, free: Visit) -> Self {
        let function = rb_sys::rb_data_type_struct__bindgen_ty_1 {
            dmark: mark,
            dfree: Some(free),
            dsize: None,
            dcompact: None,
            reserved: [std::ptr::null_mut(); 1],
        };
        let (parent, data) = (std::ptr::null(), std::ptr::null_mut());
        Self(rb_data_type_t { wrap_struct_name: name.as_ptr(), function, parent, data, flags: 0 })
    }

    /// An object of `class` that owns a value of this type.
    pub(super) fn wrap<T>(&'static self, class: VALUE, value: Box<T>) -> VALUE {
        let value = Box::into_raw(value).cast();
        // SAFETY: the object owns the value from here on.
        unsafe { rb_sys::rb_data_typed_object_wrap(class, value, &raw const self.0) }
    }

    /// The value behind an object.
    ///
    /// # Safety
    /// `T` is what was wrapped. Called by Ruby, with the object on a stack, and nothing with a
    /// destructor alive: it raises a TypeError for another object.
    pub(super) unsafe fn value_of<'a, T>(&'static self, object: VALUE) -> &'a T {
        // SAFETY: as this function's own.
        let value = unsafe { rb_sys::rb_check_typeddata(object, &raw const self.0) };
        // SAFETY: the type was checked, and the object keeps the value alive.
        unsafe { &*value.cast::<T>() }
    }
}

/// Defines a class beneath `module` whose objects only Rust makes.
pub(super) fn define_class(module: VALUE, name: &CStr) -> VALUE {
    // SAFETY: Ruby sets the global once, before any extension is loaded.
    let object = unsafe { rb_sys::rb_cObject };
    // SAFETY: called while the extension is loaded; the name ends in NUL.
    let class = unsafe { rb_sys::rb_define_class_under(module, name.as_ptr(), object) };
    // SAFETY: as above.
    unsafe { rb_sys::rb_undef_alloc_func(class) };
    class
}

/// A method by the number of its arguments; the first value is self.
pub(super) enum Method {
    None(unsafe extern "C" fn(VALUE) -> VALUE),
    One(unsafe extern "C" fn(VALUE, VALUE) -> VALUE),
    Two(unsafe extern "C" fn(VALUE, VALUE, VALUE) -> VALUE),
}

/// Whose method it is.
#[derive(PartialEq, Eq)]
pub(super) enum Owner {
    Class,
    Instance,
}

pub(super) fn define_method(class: VALUE, owner: Owner, name: &CStr, method: Method) {
    let (function, arity) = match method {
        Method::None(function) => (function as *const c_void, 0),
        Method::One(function) => (function as *const c_void, 1),
        Method::Two(function) => (function as *const c_void, 2),
    };
    // SAFETY: Ruby calls the function with as many values as the arity says.
    let function =
        unsafe { std::mem::transmute::<*const c_void, unsafe extern "C" fn() -> VALUE>(function) };
    if owner == Owner::Class {
        // SAFETY: called while the extension is loaded, with the interpreter lock held.
        unsafe { rb_sys::rb_define_singleton_method(class, name.as_ptr(), Some(function), arity) };
    } else {
        // SAFETY: as above.
        unsafe { rb_sys::rb_define_method(class, name.as_ptr(), Some(function), arity) };
    }
}

/// Gives Ruby what a function has made, or raises what stopped it.
pub(super) fn give(gvl: Gvl, answer: Result<VALUE, Raised>) -> VALUE {
    match answer {
        Ok(value) => value,
        // SAFETY: the functions that Ruby calls keep nothing with a destructor until their end.
        Err(raised) => unsafe { raised.resume(gvl) },
    }
}
