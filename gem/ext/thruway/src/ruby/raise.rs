//! Raises exceptions. No value with a destructor lives in a frame that Ruby unwinds.

use std::ffi::CStr;

use rb_sys::VALUE;

use super::gvl::Protected;
use super::string::RString;

/// Raises LoadError.
pub(crate) fn load_error(_: Protected, message: &'static CStr) -> ! {
    // SAFETY: the message has no conversions (`%`); exceptions are caught further up.
    unsafe { rb_sys::rb_loaderror(message.as_ptr()) }
}

/// Raises ArgumentError.
pub(crate) fn argument_error(ruby: Protected, message: RString) -> ! {
    // SAFETY: the class is set when Ruby starts, and never changes.
    error(ruby, unsafe { rb_sys::rb_eArgError }, message)
}

/// Raises TypeError.
pub(crate) fn type_error(ruby: Protected, message: RString) -> ! {
    // SAFETY: the class is set when Ruby starts, and never changes.
    error(ruby, unsafe { rb_sys::rb_eTypeError }, message)
}

/// Raises RuntimeError.
pub(crate) fn runtime_error(ruby: Protected, message: RString) -> ! {
    // SAFETY: the class is set when Ruby starts, and never changes.
    error(ruby, unsafe { rb_sys::rb_eRuntimeError }, message)
}

/// Raises IOError.
pub(crate) fn io_error(ruby: Protected, message: RString) -> ! {
    // SAFETY: the class is set when Ruby starts, and never changes.
    error(ruby, unsafe { rb_sys::rb_eIOError }, message)
}

fn error(_: Protected, class: VALUE, message: RString) -> ! {
    // SAFETY: the callers pass classes of exceptions that Ruby defines.
    let error = unsafe { rb_sys::rb_exc_new_str(class, message.value()) };
    // SAFETY: the value is an exception; it is caught further up.
    unsafe { rb_sys::rb_exc_raise(error) }
}
