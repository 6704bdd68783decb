//! Constants and global variables.

use std::ffi::CStr;

use rb_sys::VALUE;

use super::call::{ask, send};
use super::gvl::{Gvl, Protected};
use super::immediate::NIL;
use super::symbol::Symbol;

/// `Object`
pub(crate) fn object() -> VALUE {
    // SAFETY: set when Ruby starts, and never again.
    unsafe { rb_sys::rb_cObject }
}

/// `Kernel`
pub(crate) fn kernel() -> VALUE {
    // SAFETY: set when Ruby starts, and never again.
    unsafe { rb_sys::rb_mKernel }
}

/// A class or module that every Ruby has from the start, by its path.
pub(crate) fn class(_: Gvl, path: &'static CStr) -> VALUE {
    // SAFETY: the path ends in NUL, and names something that is there.
    unsafe { rb_sys::rb_path2class(path.as_ptr()) }
}

/// The class or module at that path of constants, if it is there already; nothing is loaded for it.
pub(crate) fn constant_at(gvl: Gvl, path: &[&'static CStr]) -> Option<VALUE> {
    path.iter().try_fold(object(), |outer, name| {
        let name = [Symbol::new(gvl, name).value()];
        let is_loaded = ask(gvl, outer, c"const_defined?", &name)
            && send(gvl, outer, c"autoload?", &name) == Some(NIL);
        if is_loaded { send(gvl, outer, c"const_get", &name) } else { None }
    })
}

/// A constant at the top; `None` if it is not there, or raised.
pub(crate) fn constant(gvl: Gvl, name: &'static CStr) -> Option<VALUE> {
    send(gvl, object(), c"const_get", &[Symbol::new(gvl, name).value()])
}

/// A constant of a module itself.
pub(crate) fn own_constant(_: Protected, module: VALUE, name: Symbol) -> Option<VALUE> {
    // SAFETY: it is a module; what it raises is caught.
    let is_defined = unsafe { rb_sys::rb_const_defined_at(module, name.id()) } != 0;
    // SAFETY: as above.
    is_defined.then(|| unsafe { rb_sys::rb_const_get_at(module, name.id()) })
}

/// Whether a constant is defined at the top.
pub(crate) fn is_defined(gvl: Gvl, name: &'static CStr) -> bool {
    // SAFETY: the number is a symbol's.
    unsafe { rb_sys::rb_const_defined_at(object(), Symbol::new(gvl, name).id()) != 0 }
}

/// A global variable's value.
pub(crate) fn global(_: Gvl, name: &'static CStr) -> VALUE {
    // SAFETY: the name ends in NUL; those that are asked for here have no getter that raises.
    unsafe { rb_sys::rb_gv_get(name.as_ptr()) }
}
