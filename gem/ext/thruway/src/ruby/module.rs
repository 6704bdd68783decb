//! Classes and modules.

use std::ffi::CStr;

use rb_sys::{VALUE, ruby_value_type};

use super::gvl::{Gvl, Protected};
use super::immediate::NIL;
use super::string::RString;
use super::symbol::Symbol;
use super::value::{Object, has_type};

/// A class or a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RModule(VALUE);

impl RModule {
    /// The object, if it is a class or a module.
    pub(crate) fn of(gvl: Gvl, value: VALUE) -> Option<Self> {
        let is_module = has_type(gvl, value, ruby_value_type::RUBY_T_CLASS)
            || has_type(gvl, value, ruby_value_type::RUBY_T_MODULE);
        is_module.then_some(Self(value))
    }

    /// `Object`
    pub(crate) fn object() -> Self {
        // SAFETY: set when Ruby starts, and never again.
        Self(unsafe { rb_sys::rb_cObject })
    }

    /// `Kernel`
    pub(crate) fn kernel() -> Self {
        // SAFETY: set when Ruby starts, and never again.
        Self(unsafe { rb_sys::rb_mKernel })
    }

    /// `File`
    pub(crate) fn file() -> Self {
        // SAFETY: set when Ruby starts, and never again.
        Self(unsafe { rb_sys::rb_cFile })
    }

    /// A class or module that Ruby has from the start, by its path; `Object`, if a program has removed it.
    pub(crate) fn named(gvl: Gvl, path: &'static CStr) -> Self {
        // SAFETY: the path ends in NUL; what it raises is caught.
        let found = gvl.protect(|_| unsafe { rb_sys::rb_path2class(path.as_ptr()) });
        found.map_or(Self::object(), Self)
    }

    /// The module's name.
    pub(crate) fn name(self, gvl: Gvl) -> RString {
        // SAFETY: it is a class or a module.
        let name = unsafe { rb_sys::rb_class_name(self.0) };
        RString::of(gvl, name).unwrap_or_else(|| RString::new(gvl, b""))
    }

    /// The class of the module's own methods.
    pub(crate) fn singleton_class(self, _: Gvl) -> Self {
        // SAFETY: it is a class or a module.
        Self(unsafe { rb_sys::rb_singleton_class(self.0) })
    }

    /// Whether a method of its instances is still Ruby's own.
    pub(crate) fn is_basic(self, _: Gvl, method: Symbol) -> bool {
        // SAFETY: it is a class or a module.
        unsafe { rb_sys::rb_method_basic_definition_p(self.0, method.id()) != 0 }
    }

    /// Whether its instances have a method of that name, private ones too.
    pub(crate) fn has_method(self, _: Gvl, method: Symbol) -> bool {
        // SAFETY: it is a class or a module.
        unsafe { rb_sys::rb_method_boundp(self.0, method.id(), 0) != 0 }
    }

    /// A constant of the module itself.
    pub(crate) fn constant(self, ruby: Protected, name: Symbol) -> Option<VALUE> {
        // SAFETY: it is a class or a module; what it raises is caught.
        self.has_constant(ruby.gvl(), name)
            .then(|| unsafe { rb_sys::rb_const_get_at(self.0, name.id()) })
    }

    /// Whether the module itself has a constant of that name.
    pub(crate) fn has_constant(self, _: Gvl, name: Symbol) -> bool {
        // SAFETY: it is a class or a module.
        unsafe { rb_sys::rb_const_defined_at(self.0, name.id()) != 0 }
    }

    /// A variable of the module that no Ruby code can see; nil if it is not set.
    pub(crate) fn hidden_variable(self, gvl: Gvl, name: &'static CStr) -> VALUE {
        // SAFETY: modules may have variables, and the number is a symbol's.
        gvl.protect(|_| unsafe { rb_sys::rb_ivar_get(self.0, Symbol::new(gvl, name).id()) })
            .unwrap_or(NIL)
    }

    /// Sets [such a variable](Self::hidden_variable).
    pub(crate) fn set_hidden_variable(self, gvl: Gvl, name: &'static CStr, value: VALUE) {
        // SAFETY: as above; what a frozen module raises is caught.
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
