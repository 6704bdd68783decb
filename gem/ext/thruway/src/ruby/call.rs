//! Calls of methods.

use std::ffi::{CStr, c_int};

use rb_sys::VALUE;

use super::gvl::{Gvl, Protected};
use super::immediate::{NIL, is_true};
use super::symbol::Symbol;

/// `receiver.name(*arguments)`; `None` if it raised.
pub(crate) fn send(
    gvl: Gvl,
    receiver: VALUE,
    name: &'static CStr,
    arguments: &[VALUE],
) -> Option<VALUE> {
    gvl.protect(|ruby| call(ruby, receiver, Symbol::new(gvl, name), arguments))
}

/// `receiver.name(*arguments)` as Ruby's boolean; `false` if it raised.
pub(crate) fn ask(gvl: Gvl, receiver: VALUE, name: &'static CStr, arguments: &[VALUE]) -> bool {
    send(gvl, receiver, name, arguments).is_some_and(is_true)
}

/// `receiver.name(*arguments)`. What it raises goes on.
pub(crate) fn call(_: Protected, receiver: VALUE, name: Symbol, arguments: &[VALUE]) -> VALUE {
    // SAFETY: the pointer is valid for that many; what it raises is caught.
    unsafe { rb_sys::rb_funcallv(receiver, name.id(), count(arguments), arguments.as_ptr()) }
}

/// Whether an object has a public method, or says so.
pub(crate) fn responds_to(_: Protected, object: VALUE, name: Symbol) -> bool {
    // SAFETY: any live object may be asked; what its own method raises is caught.
    unsafe { rb_sys::rb_respond_to(object, name.id()) != 0 }
}

/// Calls a Method. What it raises goes on.
pub(crate) fn call_method(_: Protected, method: VALUE, arguments: &[VALUE]) -> VALUE {
    // SAFETY: the pointer is valid for that many; what it raises is caught.
    unsafe { rb_sys::rb_method_call(count(arguments), arguments.as_ptr(), method) }
}

/// Calls a Method as the running method was called: with its block, and with keywords if it had any.
pub(crate) fn forward_to_method(ruby: Protected, method: VALUE, arguments: &[VALUE]) -> VALUE {
    let (count, block) = (count(arguments), block(ruby));
    let keywords = c_int::from(has_keywords(ruby));
    // SAFETY: the pointer is valid for that many; what it raises is caught.
    unsafe {
        rb_sys::rb_method_call_with_block_kw(count, arguments.as_ptr(), method, block, keywords)
    }
}

/// The method that the running one stands in front of, with the arguments as they came.
pub(crate) fn call_super(ruby: Protected, arguments: &[VALUE]) -> VALUE {
    let keywords = c_int::from(has_keywords(ruby));
    // SAFETY: the pointer is valid for that many; what it raises is caught.
    unsafe { rb_sys::rb_call_super_kw(count(arguments), arguments.as_ptr(), keywords) }
}

/// Whether the running method was called with keywords, which are its last argument then.
pub(crate) fn has_keywords(_: Protected) -> bool {
    // SAFETY: a method of ours is running.
    unsafe { rb_sys::rb_keyword_given_p() != 0 }
}

/// The block that the running method was called with.
fn block(_: Protected) -> VALUE {
    // SAFETY: a method of ours is running.
    if unsafe { rb_sys::rb_block_given_p() } == 0 {
        return NIL;
    }
    // SAFETY: as above, and there is one.
    unsafe { rb_sys::rb_block_proc() }
}

/// `object.method(name)`, whatever the object has in the place of `method`. Raises NameError.
pub(crate) fn method_of(_: Protected, object: VALUE, name: Symbol) -> VALUE {
    // SAFETY: what it raises is caught.
    unsafe { rb_sys::rb_obj_method(object, name.value()) }
}

fn count(arguments: &[VALUE]) -> c_int {
    // No call has more.
    c_int::try_from(arguments.len()).unwrap_or(c_int::MAX)
}
