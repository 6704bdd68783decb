//! Calls of methods.

use std::ffi::{CStr, c_int};
use std::ops::ControlFlow;

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

/// Calls `receiver.name` with a block, which gets all values that are yielded at once, until `block` breaks. What it
/// raises goes on.
pub(crate) fn call_with_block<F: FnMut(Protected, &[VALUE]) -> ControlFlow<()>>(
    _: Protected,
    receiver: VALUE,
    name: Symbol,
    mut block: F,
) {
    unsafe extern "C" fn yielded<F: FnMut(Protected, &[VALUE]) -> ControlFlow<()>>(
        _first: VALUE,
        block: VALUE,
        count: c_int,
        values: *const VALUE,
        _its_block: VALUE,
    ) -> VALUE {
        // SAFETY: `call_with_block` passes a pointer to its closure, which outlives the call.
        let block = unsafe { &mut *(block as *mut F) };
        // SAFETY: Ruby calls its blocks with the lock held; the caller has a proof that what is raised is caught.
        let ruby = unsafe { Protected::assume() };
        let values = match usize::try_from(count) {
            Ok(count @ 1..) => {
                // SAFETY: Ruby passes so many values, which live as long as the block's call.
                unsafe { std::slice::from_raw_parts(values, count) }
            }
            _ => &[],
        };
        if block(ruby, values).is_break() {
            // SAFETY: a block's function is running, and nothing with a destructor lives in it.
            unsafe { rb_sys::rb_iter_break() }
        }
        NIL
    }
    let (name, block) = (name.id(), (&raw mut block) as VALUE);
    let none = std::ptr::null();
    // SAFETY: the callback fits the argument; what it raises is caught.
    unsafe { rb_sys::rb_block_call(receiver, name, 0, none, Some(yielded::<F>), block) };
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
