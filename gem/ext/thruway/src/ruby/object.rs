//! Objects of classes that Ruby code defines.

use rb_sys::{VALUE, ruby_value_type};

use super::gvl::Gvl;
use super::module::RModule;
use super::symbol::Symbol;
use super::value::{Object, has_type};

/// A class whose objects have variables and nothing else. To allocate one raises nothing but NoMemoryError.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlainClass(VALUE);

impl PlainClass {
    /// The object, if it is such a class.
    pub(crate) fn of(gvl: Gvl, value: VALUE) -> Option<Self> {
        if !has_type(gvl, value, ruby_value_type::RUBY_T_CLASS) {
            return None;
        }
        // SAFETY: it is a class.
        let allocator = unsafe { rb_sys::rb_get_alloc_func(value) }?;
        // SAFETY: as above.
        let plain = unsafe { rb_sys::rb_get_alloc_func(RModule::object().value()) }?;
        // SAFETY: it is a class; what it raises is caught.
        let first = gvl.protect(|_| unsafe { rb_sys::rb_obj_alloc(value) });
        (std::ptr::fn_addr_eq(allocator, plain) && first.is_some()).then_some(Self(value))
    }

    /// A new object, without a call of `initialize`, with these variables.
    pub(crate) fn allocate(self, _: Gvl, variables: &[(Symbol, VALUE)]) -> VALUE {
        // SAFETY: it is a class, as the type says.
        let object = unsafe { rb_sys::rb_obj_alloc(self.0) };
        for (name, value) in variables {
            // SAFETY: no Ruby code has seen the object, so it is not frozen; the number is a symbol's.
            unsafe { rb_sys::rb_ivar_set(object, name.id(), *value) };
        }
        object
    }
}

impl Object for PlainClass {
    fn value(self) -> VALUE {
        self.0
    }
}

/// An instance variable of an object, nil if it is not set.
pub(crate) fn variable(_: Gvl, object: VALUE, name: Symbol) -> VALUE {
    // SAFETY: any live object may be asked for a variable, and the number is a symbol's.
    unsafe { rb_sys::rb_ivar_get(object, name.id()) }
}
