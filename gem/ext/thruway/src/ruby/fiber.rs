//! Fibers, and the scheduler of a thread.

use rb_sys::VALUE;

use super::gvl::{Gvl, ProtectedCall};

/// The calling fiber. No two threads share a fiber.
pub(crate) fn current(_: Gvl) -> VALUE {
    // SAFETY: the lock is held by a Ruby thread. May raise NoMemoryError only.
    unsafe { rb_sys::rb_fiber_current() }
}

/// Transfers to `fiber`, a fiber of this thread, and returns when another fiber transfers back. Raises FiberError,
/// and any exception that is raised in this fiber meanwhile.
pub(crate) fn transfer(_: ProtectedCall, fiber: VALUE) {
    // SAFETY: the value is a fiber; exceptions are caught further up.
    unsafe { rb_sys::rb_fiber_transfer(fiber, 0, std::ptr::null()) };
}

/// Whether fibers have storage that new fibers inherit (Ruby 3.2).
pub(crate) const HAS_STORAGE: bool =
    rb_sys::RUBY_API_VERSION_MAJOR > 3 || rb_sys::RUBY_API_VERSION_MINOR >= 2;

/// Whether a fiber has instance variables.
pub(crate) fn has_variables(_: Gvl, fiber: VALUE) -> bool {
    // SAFETY: any live object may be asked.
    unsafe { rb_sys::rb_ivar_count(fiber) != 0 }
}

/// Sets the scheduler of the calling thread; nil removes the scheduler. Raises ArgumentError for an object without the
/// methods of a scheduler.
pub(crate) fn set_scheduler(_: ProtectedCall, scheduler: VALUE) {
    // SAFETY: exceptions are caught further up.
    unsafe { rb_sys::rb_fiber_scheduler_set(scheduler) };
}

/// The scheduler of the calling fiber; nil in a blocking fiber, and in a thread without a scheduler.
pub(crate) fn current_scheduler(_: Gvl) -> VALUE {
    // SAFETY: the lock is held by a Ruby thread.
    unsafe { rb_sys::rb_fiber_scheduler_current() }
}

/// The descriptor of an IO. Raises IOError if it is closed.
pub(crate) fn descriptor(_: ProtectedCall, io: VALUE) -> i32 {
    // SAFETY: the function converts the object, or raises; exceptions are caught further up.
    unsafe { rb_sys::rb_io_descriptor(io) }
}
