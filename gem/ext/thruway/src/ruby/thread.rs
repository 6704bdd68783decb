//! Ruby threads.

use rb_sys::VALUE;

use super::gvl::{Gvl, ProtectedCall};

/// The calling thread.
pub(crate) fn current(_: Gvl) -> VALUE {
    // SAFETY: the lock is held by a Ruby thread.
    unsafe { rb_sys::rb_thread_current() }
}

/// Lets the next thread run that waits for the interpreter lock, if there is one. Then signals, `Thread#raise` and
/// `Thread#kill` take effect.
pub(crate) fn yield_now(_: ProtectedCall) {
    // SAFETY: the lock is held by a Ruby thread, and exceptions are caught further up.
    unsafe { rb_sys::rb_thread_schedule() };
}

/// Lets signals, `Thread#raise` and `Thread#kill` take effect.
pub(crate) fn check_interrupts(_: ProtectedCall) {
    // SAFETY: exceptions are caught further up.
    unsafe { rb_sys::rb_thread_check_ints() };
}
