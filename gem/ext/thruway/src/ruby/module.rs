//! Classes and modules.

use std::ffi::CStr;

use rb_sys::{VALUE, ruby_value_type};

use super::gvl::{Gvl, ProtectedCall};
use super::immediate::NIL;
use super::string::RString;
use super::symbol::Symbol;
use super::value::{Object, has_type};

/// A class or module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RModule(VALUE);

impl RModule {
    /// Returns the object as a module if it is a class or module.
    pub(crate) fn of(gvl: Gvl, value: VALUE) -> Option<Self> {
        let is_module = has_type(gvl, value, ruby_value_type::RUBY_T_CLASS)
            || has_type(gvl, value, ruby_value_type::RUBY_T_MODULE);
        is_module.then_some(Self(value))
    }

    /// The class `Object`.
    pub(crate) fn object() -> Self {
        // SAFETY: the class is set when Ruby starts, and never changes.
        Self(unsafe { rb_sys::rb_cObject })
    }

    /// The module `Kernel`.
    pub(crate) fn kernel() -> Self {
        // SAFETY: the module is set when Ruby starts, and never changes.
        Self(unsafe { rb_sys::rb_mKernel })
    }

    /// The class `File`.
    pub(crate) fn file() -> Self {
        // SAFETY: the class is set when Ruby starts, and never changes.
        Self(unsafe { rb_sys::rb_cFile })
    }

    /// A class or module that Ruby itself defines, by its path; `Object` if a program has removed it.
    pub(crate) fn named(gvl: Gvl, path: &'static CStr) -> Self {
        // SAFETY: the path ends in NUL; exceptions are caught further up.
        let found = gvl.protect(|_| unsafe { rb_sys::rb_path2class(path.as_ptr()) });
        found.map_or(Self::object(), Self)
    }

    /// The module's name.
    pub(crate) fn name(self, gvl: Gvl) -> RString {
        // SAFETY: the value is a class or a module.
        let name = unsafe { rb_sys::rb_class_name(self.0) };
        RString::of(gvl, name).unwrap_or_else(|| RString::new(gvl, b""))
    }

    /// The singleton class, which holds the module's own methods.
    pub(crate) fn singleton_class(self, _: Gvl) -> Self {
        // SAFETY: the value is a class or a module.
        Self(unsafe { rb_sys::rb_singleton_class(self.0) })
    }

    /// Whether a method of the module's instances is still Ruby's own.
    pub(crate) fn is_basic(self, _: Gvl, method: Symbol) -> bool {
        // SAFETY: the value is a class or a module.
        unsafe { rb_sys::rb_method_basic_definition_p(self.0, method.id()) != 0 }
    }

    /// Whether the module's instances have a method of that name, including private methods.
    pub(crate) fn has_method(self, _: Gvl, method: Symbol) -> bool {
        // SAFETY: the value is a class or a module.
        unsafe { rb_sys::rb_method_boundp(self.0, method.id(), 0) != 0 }
    }

    /// The value of a constant that the module itself defines.
    pub(crate) fn constant(self, ruby: ProtectedCall, name: Symbol) -> Option<VALUE> {
        // SAFETY: the value is a class or a module; exceptions are caught further up.
        self.has_constant(ruby.gvl(), name)
            .then(|| unsafe { rb_sys::rb_const_get_at(self.0, name.id()) })
    }

    /// Whether the module itself defines a constant of that name.
    pub(crate) fn has_constant(self, _: Gvl, name: Symbol) -> bool {
        // SAFETY: the value is a class or a module.
        unsafe { rb_sys::rb_const_defined_at(self.0, name.id()) != 0 }
    }

    /// An instance variable that Ruby code cannot see, because its name has no `@`; nil if the variable is not set.
    pub(crate) fn hidden_variable(self, gvl: Gvl, name: &'static CStr) -> VALUE {
        // SAFETY: modules may have variables, and the ID is a Symbol's.
        gvl.protect(|_| unsafe { rb_sys::rb_ivar_get(self.0, Symbol::new(gvl, name).id()) })
            .unwrap_or(NIL)
    }

    /// Sets a [hidden variable](Self::hidden_variable).
    pub(crate) fn set_hidden_variable(self, gvl: Gvl, name: &'static CStr, value: VALUE) {
        // SAFETY: as above; the exception of a frozen module is caught.
        gvl.protect(|_| unsafe { rb_sys::rb_ivar_set(self.0, Symbol::new(gvl, name).id(), value) });
    }

    pub(crate) fn value(self) -> VALUE {
        self.0
    }
}

impl Object for RModule {
    fn value(self) -> VALUE {
        self.0
    }
}
