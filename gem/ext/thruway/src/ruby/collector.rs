//! Ruby's garbage collector.

use super::gvl::Gvl;
use super::immediate::is_true;

/// Returns the result of `work`, during which no garbage is collected. So `work` may hold objects where the collector
/// does not look, such as in a value that no object owns yet. `work` does not raise.
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
