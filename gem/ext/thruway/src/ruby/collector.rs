//! Ruby's garbage collector.

use super::gvl::Gvl;
use super::immediate::is_true;

/// Runs `work` with the garbage collector disabled, and returns its result. Meanwhile, objects may be kept where the
/// collector does not look for them, such as in a Rust value that no Ruby object owns yet. `work` must not raise.
pub(crate) fn without_collection<T>(_: Gvl, work: impl FnOnce() -> T) -> T {
    // SAFETY: the lock is held.
    let was_off = is_true(unsafe { rb_sys::rb_gc_disable() });
    let result = work();
    if !was_off {
        // SAFETY: as above.
        unsafe { rb_sys::rb_gc_enable() };
    }
    result
}
