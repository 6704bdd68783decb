//! Exceptions of ours. No value with a destructor lives in a frame that Ruby unwinds.

use std::ffi::CStr;

use super::gvl::Protected;
use super::string::RString;

/// Raises LoadError.
pub(crate) fn load_error(_: Protected, message: &'static CStr) -> ! {
    // SAFETY: the message has no conversions (`%`); what it raises is caught.
    unsafe { rb_sys::rb_loaderror(message.as_ptr()) }
}

/// Raises ArgumentError.
pub(crate) fn argument_error(_: Protected, message: RString) -> ! {
    // SAFETY: set when Ruby starts, and never again.
    let class = unsafe { rb_sys::rb_eArgError };
    // SAFETY: a class of exceptions and a String.
    let error = unsafe { rb_sys::rb_exc_new_str(class, message.value()) };
    // SAFETY: it is an exception; what it raises is caught.
    unsafe { rb_sys::rb_exc_raise(error) }
}
