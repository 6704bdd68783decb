//! Raises exceptions. No value with a destructor lives in a frame that Ruby unwinds.

use std::ffi::{CStr, c_int};

use rb_sys::VALUE;

use super::array::RArray;
use super::gvl::{Gvl, ProtectedCall};
use super::immediate::NIL;
use super::module::RModule;
use super::string::RString;

/// Raises LoadError.
pub(crate) fn load_error(_: ProtectedCall, message: &'static CStr) -> ! {
    // SAFETY: the message has no conversions (`%`); exceptions are caught further up.
    unsafe { rb_sys::rb_loaderror(message.as_ptr()) }
}

/// Raises ArgumentError.
pub(crate) fn argument_error(ruby: ProtectedCall, message: RString) -> ! {
    // SAFETY: the class is set when Ruby starts, and never changes.
    error(ruby, unsafe { rb_sys::rb_eArgError }, message)
}

/// Raises TypeError.
pub(crate) fn type_error(ruby: ProtectedCall, message: RString) -> ! {
    // SAFETY: the class is set when Ruby starts, and never changes.
    error(ruby, unsafe { rb_sys::rb_eTypeError }, message)
}

/// Raises RuntimeError.
pub(crate) fn runtime_error(ruby: ProtectedCall, message: RString) -> ! {
    // SAFETY: the class is set when Ruby starts, and never changes.
    error(ruby, unsafe { rb_sys::rb_eRuntimeError }, message)
}

/// Raises IOError.
pub(crate) fn io_error(ruby: ProtectedCall, message: RString) -> ! {
    // SAFETY: the class is set when Ruby starts, and never changes.
    error(ruby, unsafe { rb_sys::rb_eIOError }, message)
}

/// Raises FiberError.
pub(crate) fn fiber_error(ruby: ProtectedCall, message: RString) -> ! {
    error(ruby, RModule::named(ruby.gvl(), c"FiberError").value(), message)
}

/// Raises an exception.
pub(crate) fn exception(_: ProtectedCall, exception: VALUE) -> ! {
    // SAFETY: Ruby checks the object; exceptions are caught further up.
    unsafe { rb_sys::rb_exc_raise(exception) }
}

/// Raises what `raise(*arguments)` does.
pub(crate) fn arguments(ruby: ProtectedCall, arguments: RArray) -> ! {
    let all = [0, 1, 2].map(|at| arguments.get(ruby.gvl(), at).unwrap_or(NIL));
    let count = arguments.len(ruby.gvl()).min(all.len());
    let length = c_int::try_from(count).unwrap_or(0);
    // SAFETY: the pointer is valid for `length` arguments; exceptions are caught further up.
    let made = unsafe { rb_sys::rb_make_exception(length, all.as_ptr()) };
    exception(ruby, made)
}

/// A RuntimeError that is not raised yet.
pub(crate) fn new_runtime_error(_: Gvl, message: RString) -> VALUE {
    // SAFETY: the class is set when Ruby starts, and never changes.
    let class = unsafe { rb_sys::rb_eRuntimeError };
    // SAFETY: the class is one of exceptions.
    unsafe { rb_sys::rb_exc_new_str(class, message.value()) }
}

/// An Errno::EPIPE that is not raised yet.
pub(crate) fn new_broken_pipe(_: Gvl) -> VALUE {
    // SAFETY: a null pointer stands for no further text.
    unsafe { rb_sys::rb_syserr_new(libc::EPIPE, std::ptr::null()) }
}

fn error(_: ProtectedCall, class: VALUE, message: RString) -> ! {
    // SAFETY: the callers pass classes of exceptions that Ruby defines.
    let error = unsafe { rb_sys::rb_exc_new_str(class, message.value()) };
    // SAFETY: the value is an exception; it is caught further up.
    unsafe { rb_sys::rb_exc_raise(error) }
}
