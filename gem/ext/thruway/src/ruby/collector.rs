//! Ruby's garbage collector.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};

use super::gvl::Gvl;
use super::immediate::is_true;
use super::symbol::Symbol;

/// Whether [`without_collection`] runs.
static IS_HELD: AtomicBool = AtomicBool::new(false);

/// Whether [`without_collection`] runs, so that the collector must not be enabled.
pub(crate) fn is_held() -> bool {
    IS_HELD.load(Ordering::Relaxed)
}

/// Runs `work` with the garbage collector disabled, and returns its result. Meanwhile, objects may be kept where the
/// collector does not look for them, such as in a Rust value that no Ruby object owns yet. `work` must not raise.
pub(crate) fn without_collection<T>(_: Gvl, work: impl FnOnce() -> T) -> T {
    // SAFETY: the lock is held.
    let was_off = is_true(unsafe { rb_sys::rb_gc_disable() });
    let was_held = IS_HELD.swap(true, Ordering::Relaxed);
    let result = work();
    IS_HELD.store(was_held, Ordering::Relaxed);
    if !was_off {
        // SAFETY: as above.
        unsafe { rb_sys::rb_gc_enable() };
    }
    result
}

/// Marks all objects and frees the others, at once.
pub(crate) fn collect(_: Gvl) {
    // SAFETY: the lock is held, and the caller keeps no object where the collector does not find it.
    unsafe { rb_sys::rb_gc_start() };
}

/// A number of `GC.stat`; zero if this Ruby does not know the name.
pub(crate) fn count(gvl: Gvl, name: &'static CStr) -> u64 {
    let name = Symbol::new(gvl, name).value();
    // An unknown name raises ArgumentError.
    // SAFETY: the name is a Symbol; exceptions are caught.
    gvl.protect(|_| unsafe { rb_sys::rb_gc_stat(name) }).unwrap_or(0)
}
