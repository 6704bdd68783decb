//! Methods of ours, in the place of Ruby's or in front of them.

use std::ffi::{CStr, c_int};
use std::mem::transmute;

use rb_sys::VALUE;

use super::vm::{NIL, ask, kernel, send, symbol};

/// A method of no argument, of one and of two, as Ruby calls it.
pub(super) type Method0 = unsafe extern "C" fn(VALUE) -> VALUE;
pub(super) type Method1 = unsafe extern "C" fn(VALUE, VALUE) -> VALUE;
pub(super) type Method2 = unsafe extern "C" fn(VALUE, VALUE, VALUE) -> VALUE;
/// A method of any number of arguments.
pub(super) type Variadic = unsafe extern "C" fn(c_int, *const VALUE, VALUE) -> VALUE;

pub(super) fn define_singleton_method_0(receiver: VALUE, name: &CStr, method: Method0) {
    // SAFETY: Ruby calls the function with as many values as the arity says: self alone.
    let any = unsafe { transmute::<Method0, unsafe extern "C" fn() -> VALUE>(method) };
    // SAFETY: the name ends in NUL, and the function lives as long as the process.
    unsafe { rb_sys::rb_define_singleton_method(receiver, name.as_ptr(), Some(any), 0) };
}

pub(super) fn define_singleton_method_1(receiver: VALUE, name: &CStr, method: Method1) {
    // SAFETY: the name ends in NUL, and the function lives as long as the process.
    unsafe { rb_sys::rb_define_singleton_method(receiver, name.as_ptr(), Some(any(method)), 1) };
}

/// Defines `receiver.name(*arguments)`.
pub(super) fn define_singleton_method(receiver: VALUE, name: &CStr, method: Variadic) {
    // SAFETY: Ruby calls the function with a count, that many values, and self, as the arity -1 says.
    let any = unsafe { transmute::<Variadic, unsafe extern "C" fn() -> VALUE>(method) };
    // SAFETY: the name ends in NUL, and the function lives as long as the process.
    unsafe { rb_sys::rb_define_singleton_method(receiver, name.as_ptr(), Some(any), -1) };
}

/// Defines a private `receiver.name(*arguments)`.
pub(super) fn define_private_singleton_method(receiver: VALUE, name: &CStr, method: Variadic) {
    // SAFETY: Ruby calls the function with a count, that many values, and self, as the arity -1 says.
    let any = unsafe { transmute::<Variadic, unsafe extern "C" fn() -> VALUE>(method) };
    // SAFETY: the receiver is a class or a module.
    let class = unsafe { rb_sys::rb_singleton_class(receiver) };
    // SAFETY: the name ends in NUL, and the function lives as long as the process.
    unsafe { rb_sys::rb_define_private_method(class, name.as_ptr(), Some(any), -1) };
}

fn define_private_method_1(module: VALUE, name: &CStr, method: Method1) {
    // SAFETY: the name ends in NUL, and the function lives as long as the process.
    unsafe { rb_sys::rb_define_private_method(module, name.as_ptr(), Some(any(method)), 1) };
}

/// Defines a private method of two arguments.
pub(super) fn define_private_method_2(module: VALUE, name: &CStr, method: Method2) {
    // SAFETY: Ruby calls the function with as many values as the arity says: self and two arguments.
    let any = unsafe { transmute::<Method2, unsafe extern "C" fn() -> VALUE>(method) };
    // SAFETY: the name ends in NUL, and the function lives as long as the process.
    unsafe { rb_sys::rb_define_private_method(module, name.as_ptr(), Some(any), 2) };
}

fn any(method: Method1) -> unsafe extern "C" fn() -> VALUE {
    // SAFETY: Ruby calls the function with as many values as the arity says: self and an argument.
    unsafe { transmute::<Method1, unsafe extern "C" fn() -> VALUE>(method) }
}

/// Runs without Ruby's remarks about methods that are defined a second time.
pub(super) fn quietly(work: impl FnOnce()) {
    // SAFETY: the place is valid for the whole process.
    let place = unsafe { rb_sys::rb_ruby_verbose_ptr() };
    // SAFETY: it is written with the lock held only.
    let verbose = unsafe { place.replace(NIL) };
    work();
    // SAFETY: as above.
    unsafe { place.write(verbose) };
}

/// Puts `method` in the place of a function of Kernel's, unless somebody has put Ruby code there.
pub(super) fn replace_kernel_function(name: &CStr, method: Method1) {
    if is_native(kernel(), c"instance_method", name) {
        define_private_method_1(kernel(), name, method);
    }
    if is_native(kernel(), c"method", name) {
        define_singleton_method_1(kernel(), name, method);
    }
}

/// Puts `method` in the place of Ruby's own `require`, wherever that has gone.
///
/// RubyGems keeps it under another name and calls it from a `require` of its own. An alias answers
/// to the name of the method that it was made from, in backtraces too; so ours is `require` for
/// a moment, and RubyGems' method is put back.
pub(super) fn replace_require(method: Method1) {
    replace_kernel_function(c"require", method);
    let alias = c"gem_original_require";
    if !ask(kernel(), c"private_method_defined?", &[symbol(alias)])
        || !is_native(kernel(), c"instance_method", alias)
    {
        return;
    }
    let Some(outer) = send(kernel(), c"instance_method", &[symbol(c"require")]) else { return };
    define_private_method_1(kernel(), c"require", method);
    // SAFETY: both names end in NUL, and the method was defined just now.
    unsafe { rb_sys::rb_define_alias(kernel(), alias.as_ptr(), c"require".as_ptr()) };
    send(kernel(), c"define_method", &[symbol(c"require"), outer]);
    send(kernel(), c"private", &[symbol(c"require")]);
}

/// Whether the method is written in C.
pub(super) fn is_native(receiver: VALUE, finder: &CStr, name: &CStr) -> bool {
    let method = send(receiver, finder, &[symbol(name)]);
    method.and_then(|method| send(method, c"source_location", &[])) == Some(NIL)
}
