//! Method calls.

use std::ffi::{CStr, c_int};

use rb_sys::VALUE;

use super::gvl::{Gvl, ProtectedCall};
use super::immediate::{NIL, is_true};
use super::symbol::Symbol;

/// Calls `receiver.name(*arguments)`; returns `None` if the method raised.
pub(crate) fn send(
    gvl: Gvl,
    receiver: VALUE,
    name: &'static CStr,
    arguments: &[VALUE],
) -> Option<VALUE> {
    gvl.protect(|ruby| call(ruby, receiver, Symbol::new(gvl, name), arguments))
}

/// Calls `receiver.name(*arguments)`, and returns the result as a boolean; `false` if the method raised.
pub(crate) fn ask(gvl: Gvl, receiver: VALUE, name: &'static CStr, arguments: &[VALUE]) -> bool {
    send(gvl, receiver, name, arguments).is_some_and(is_true)
}

/// Calls `receiver.name(*arguments)`. Exceptions propagate.
pub(crate) fn call(_: ProtectedCall, receiver: VALUE, name: Symbol, arguments: &[VALUE]) -> VALUE {
    // SAFETY: the pointer is valid for `count` arguments; exceptions are caught further up.
    unsafe { rb_sys::rb_funcallv(receiver, name.id(), count(arguments), arguments.as_ptr()) }
}

/// Whether an object has a public method of that name, or claims so in `respond_to_missing?`.
pub(crate) fn responds_to(_: ProtectedCall, object: VALUE, name: Symbol) -> bool {
    // SAFETY: any live object may be asked; exceptions of its own method are caught further up.
    unsafe { rb_sys::rb_respond_to(object, name.id()) != 0 }
}

/// Calls a Method. Exceptions propagate.
pub(crate) fn call_method(_: ProtectedCall, method: VALUE, arguments: &[VALUE]) -> VALUE {
    // SAFETY: the pointer is valid for `count` arguments; exceptions are caught further up.
    unsafe { rb_sys::rb_method_call(count(arguments), arguments.as_ptr(), method) }
}

/// Calls a Method in the way in which the running method was called: with its block, and with keywords if there were
/// any.
pub(crate) fn forward_to_method(ruby: ProtectedCall, method: VALUE, arguments: &[VALUE]) -> VALUE {
    let (count, block) = (count(arguments), block(ruby));
    let keywords = c_int::from(has_keywords(ruby));
    // SAFETY: the pointer is valid for `count` arguments; exceptions are caught further up.
    unsafe {
        rb_sys::rb_method_call_with_block_kw(count, arguments.as_ptr(), method, block, keywords)
    }
}

/// Calls the method that the running method overrides, with the original arguments.
pub(crate) fn call_super(ruby: ProtectedCall, arguments: &[VALUE]) -> VALUE {
    let keywords = c_int::from(has_keywords(ruby));
    // SAFETY: the pointer is valid for `count` arguments; exceptions are caught further up.
    unsafe { rb_sys::rb_call_super_kw(count(arguments), arguments.as_ptr(), keywords) }
}

/// Whether the running method was called with keywords, which are then its last argument.
pub(crate) fn has_keywords(_: ProtectedCall) -> bool {
    // SAFETY: a method of ours is running.
    unsafe { rb_sys::rb_keyword_given_p() != 0 }
}

/// The block that was passed to the running method; nil for none.
fn block(_: ProtectedCall) -> VALUE {
    // SAFETY: a method of ours is running.
    if unsafe { rb_sys::rb_block_given_p() } == 0 {
        return NIL;
    }
    // SAFETY: as above, and the method has a block.
    unsafe { rb_sys::rb_block_proc() }
}

/// `object.method(name)`, even if the object overrides `method`. Raises NameError.
pub(crate) fn method_of(_: ProtectedCall, object: VALUE, name: Symbol) -> VALUE {
    // SAFETY: exceptions are caught further up.
    unsafe { rb_sys::rb_obj_method(object, name.value()) }
}

fn count(arguments: &[VALUE]) -> c_int {
    // No call has more arguments.
    c_int::try_from(arguments.len()).unwrap_or(c_int::MAX)
}
