//! The few calls of Ruby's C API that every module needs, each with its invariant.

use std::ffi::CStr;
use std::mem::transmute;

use rb_sys::{
    VALUE, rb_define_module, rb_define_singleton_method, rb_string_value, rb_utf8_str_new,
};

/// Raises LoadError in a Ruby that this extension was not built for. Nothing else would keep it from being
/// loaded there, and objects have other forms in each version.
pub(crate) fn require_own_version() {
    let built_for = [rb_sys::RUBY_API_VERSION_MAJOR, rb_sys::RUBY_API_VERSION_MINOR];
    // SAFETY: a constant of libruby's.
    let [major, minor, _] = unsafe { rb_sys::ruby_api_version };
    if [major, minor].map(i32::unsigned_abs) != built_for {
        let message =
            c"thruway was built for another version of Ruby; build or install it with this one";
        // SAFETY: the message has no conversions, and nothing with a destructor lives here.
        unsafe { rb_sys::rb_loaderror(message.as_ptr()) }
    }
}

/// The module of that name, made if it is not there.
pub(crate) fn define_module(name: &CStr) -> VALUE {
    // SAFETY: called from `Init_thruway`, with the interpreter lock held; the name ends in NUL.
    unsafe { rb_define_module(name.as_ptr()) }
}

/// Defines `receiver.name(a, b)`.
pub(crate) fn define_singleton_method_2(
    receiver: VALUE,
    name: &CStr,
    method: unsafe extern "C" fn(VALUE, VALUE, VALUE) -> VALUE,
) {
    // SAFETY: Ruby calls the function with as many values as the arity says: self and two arguments.
    let any = unsafe {
        transmute::<
            unsafe extern "C" fn(VALUE, VALUE, VALUE) -> VALUE,
            unsafe extern "C" fn() -> VALUE,
        >(method)
    };
    // SAFETY: called while the extension is loaded, with the interpreter lock held.
    unsafe { rb_define_singleton_method(receiver, name.as_ptr(), Some(any), 2) };
}

/// Turns `value` into a String as Ruby does for an argument; raises TypeError if it is none.
///
/// # Safety
/// The interpreter lock is held, and no value with a destructor is alive in the caller.
pub(crate) unsafe fn to_string(mut value: VALUE) -> VALUE {
    // SAFETY: as this function's own.
    unsafe { rb_string_value(&raw mut value) }
}

/// The bytes of a String.
///
/// # Safety
/// `string` is a String that stays on the caller's stack and is not changed while the slice lives.
pub(crate) unsafe fn bytes<'a>(string: VALUE) -> &'a [u8] {
    // SAFETY: as this function's own.
    let start = unsafe { rb_sys::RSTRING_PTR(string) }.cast::<u8>();
    // SAFETY: as this function's own.
    let length = unsafe { rb_sys::RSTRING_LEN(string) }.unsigned_abs();
    // SAFETY: the pointer and the length are of one String, unchanged since.
    unsafe { std::slice::from_raw_parts(start, length as usize) }
}

/// A new UTF-8 String with a copy of `bytes`.
pub(crate) fn utf8_string(bytes: &[u8]) -> VALUE {
    let length = bytes.len().try_into().unwrap_or(0);
    // SAFETY: the pointer is valid for the length, and Ruby copies.
    unsafe { rb_utf8_str_new(bytes.as_ptr().cast(), length) }
}
