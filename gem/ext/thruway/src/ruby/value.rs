//! Objects of any kind.

use std::ffi::CStr;

use rb_sys::{VALUE, ruby_value_type};

use super::gvl::Gvl;
use super::immediate::TRUE;

/// An object that the garbage collector neither frees nor moves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PinnedObject(VALUE);

// SAFETY: a VALUE is a number; using it as an object requires a `Gvl`.
unsafe impl Send for PinnedObject {}
// SAFETY: as above.
unsafe impl Sync for PinnedObject {}

impl PinnedObject {
    /// Pins an object for the life of the process.
    pub(crate) fn new(_: Gvl, object: VALUE) -> Self {
        // SAFETY: the lock is held; the object is live, since it is on this stack.
        unsafe { rb_sys::rb_gc_register_mark_object(object) };
        Self(object)
    }

    pub(crate) fn value(self) -> VALUE {
        self.0
    }
}

/// A type that represents a Ruby object.
pub(crate) trait Object: Copy {
    fn value(self) -> VALUE;
}

impl Object for PinnedObject {
    fn value(self) -> VALUE {
        self.0
    }
}

impl Object for VALUE {
    fn value(self) -> VALUE {
        self
    }
}

/// Whether an object is of that type or of a derived one.
pub(crate) fn has_type(_: Gvl, object: VALUE, kind: ruby_value_type) -> bool {
    // SAFETY: any live object may be asked for its type.
    unsafe { rb_sys::RB_TYPE_P(object, kind) }
}

/// An object's class, ignoring singleton classes.
pub(crate) fn class_of(_: Gvl, object: VALUE) -> VALUE {
    // SAFETY: any live object may be asked for its class.
    unsafe { rb_sys::rb_obj_class(object) }
}

/// Whether the object's class is exactly `class`, and the object has no instance variables.
pub(crate) fn is_exactly(gvl: Gvl, object: VALUE, class: VALUE) -> bool {
    // SAFETY: any live object may be asked for its variables.
    class_of(gvl, object) == class && unsafe { rb_sys::rb_ivar_count(object) } == 0
}

/// Whether the object is a plain one of exactly that class: it has no singleton class with methods of its own.
pub(crate) fn is_plain(gvl: Gvl, object: VALUE, class: VALUE) -> bool {
    if !has_type(gvl, object, ruby_value_type::RUBY_T_OBJECT) {
        return false;
    }
    let object = object as *const rb_sys::RBasic;
    // SAFETY: the value is a live object of that type, and every object begins with this structure.
    unsafe { (*object).klass == class }
}

/// The name of an object's class.
pub(crate) fn class_name<'a>(_: Gvl, object: VALUE) -> &'a CStr {
    // SAFETY: any live object may be asked for its class's name.
    let name = unsafe { rb_sys::rb_obj_classname(object) };
    // SAFETY: Ruby keeps the names of classes for ever, and ends them with NUL; null means no name.
    if name.is_null() { c"" } else { unsafe { CStr::from_ptr(name) } }
}

pub(crate) fn is_frozen(_: Gvl, object: VALUE) -> bool {
    // SAFETY: any live object may be asked.
    unsafe { rb_sys::rb_obj_frozen_p(object) == TRUE }
}

pub(crate) fn freeze(_: Gvl, object: VALUE) -> VALUE {
    // SAFETY: any live object may be frozen.
    unsafe { rb_sys::rb_obj_freeze(object) }
}

/// Whether the object is internal: it has no class, and no Ruby code can reach it.
pub(crate) fn is_internal(_: Gvl, object: VALUE) -> bool {
    // SAFETY: the value is a live object on the heap, all of which begin with the same header; numbers have a class.
    !rb_sys::SPECIAL_CONST_P(object) && unsafe { (*(object as *const rb_sys::RBasic)).klass } == 0
}
