//! Constants and global variables.

use std::ffi::CStr;

use rb_sys::VALUE;

use super::call::{ask, send};
use super::gvl::Gvl;
use super::immediate::NIL;
use super::module::RModule;
use super::symbol::Symbol;

/// The object at that path of constants, if all of them are defined; nothing is autoloaded.
pub(crate) fn constant_at(gvl: Gvl, path: &[&'static CStr]) -> Option<VALUE> {
    path.iter().try_fold(RModule::object().value(), |outer, name| {
        let name = [Symbol::new(gvl, name).value()];
        let is_loaded = ask(gvl, outer, c"const_defined?", &name)
            && send(gvl, outer, c"autoload?", &name) == Some(NIL);
        if is_loaded { send(gvl, outer, c"const_get", &name) } else { None }
    })
}

/// A constant at the top level; `None` if it is not defined, or if a lookup raised.
pub(crate) fn constant(gvl: Gvl, name: &'static CStr) -> Option<VALUE> {
    send(gvl, RModule::object().value(), c"const_get", &[Symbol::new(gvl, name).value()])
}

/// The value of a global variable.
pub(crate) fn global(_: Gvl, name: &'static CStr) -> VALUE {
    // SAFETY: the name ends in NUL; the variables that are read here have no getter that raises.
    unsafe { rb_sys::rb_gv_get(name.as_ptr()) }
}

/// The class or module at that path of constants, found as by [`constant_at`].
pub(crate) fn module_at(gvl: Gvl, path: &[&'static CStr]) -> Option<RModule> {
    RModule::of(gvl, constant_at(gvl, path)?)
}
