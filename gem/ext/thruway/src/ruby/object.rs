//! Objects of classes that are defined in Ruby.

use rb_sys::{VALUE, ruby_value_type};

use super::gvl::Gvl;
use super::module::RModule;
use super::symbol::Symbol;
use super::value::{Object, has_type};

/// A class whose objects have instance variables and no other data. Allocating an object raises nothing but
/// NoMemoryError.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlainClass(VALUE);

impl PlainClass {
    /// Returns the object as such a class if it is one.
    pub(crate) fn of(gvl: Gvl, value: VALUE) -> Option<Self> {
        if !has_type(gvl, value, ruby_value_type::RUBY_T_CLASS) {
            return None;
        }
        // SAFETY: the value is a class.
        let allocator = unsafe { rb_sys::rb_get_alloc_func(value) }?;
        // SAFETY: as above.
        let plain = unsafe { rb_sys::rb_get_alloc_func(RModule::object().value()) }?;
        // SAFETY: the value is a class; exceptions are caught further up.
        let first = gvl.protect(|_| unsafe { rb_sys::rb_obj_alloc(value) });
        (std::ptr::fn_addr_eq(allocator, plain) && first.is_some()).then_some(Self(value))
    }

    /// Returns a new object with these instance variables, without calling `initialize`.
    pub(crate) fn allocate(self, _: Gvl, variables: &[(Symbol, VALUE)]) -> VALUE {
        // SAFETY: the value is a class, as the type says.
        let object = unsafe { rb_sys::rb_obj_alloc(self.0) };
        for (name, value) in variables {
            // SAFETY: no Ruby code has seen the object, so it is not frozen; the ID is a Symbol's.
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

/// An instance variable of an object; nil if the variable is not set.
pub(crate) fn variable(_: Gvl, object: VALUE, name: Symbol) -> VALUE {
    // SAFETY: any live object may be asked for a variable, and the ID is a Symbol's.
    unsafe { rb_sys::rb_ivar_get(object, name.id()) }
}
