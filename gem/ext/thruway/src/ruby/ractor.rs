//! The main Ractor, which alone runs code of this extension. Other Ractors run in parallel, and may not access the
//! objects that the extension keeps.

use std::sync::OnceLock;

use rb_sys::rb_ractor_local_key_t;

use super::gvl::Gvl;
use super::immediate::TRUE;

/// A key of Ractor-local storage for which only the main Ractor has a value.
struct Mark(rb_ractor_local_key_t);

// SAFETY: a key is a name that Ruby neither moves nor frees, and that any thread may look up.
unsafe impl Send for Mark {}
// SAFETY: as above.
unsafe impl Sync for Mark {}

static MARK: OnceLock<Mark> = OnceLock::new();

/// Marks the running Ractor as the main one. Ruby lets no other Ractor load an extension that is not declared safe
/// for Ractors.
pub(crate) fn mark_main(_: Gvl) {
    MARK.get_or_init(|| {
        // SAFETY: the lock is held.
        let key = unsafe { rb_sys::rb_ractor_local_storage_value_newkey() };
        // SAFETY: the key was created just now.
        unsafe { rb_sys::rb_ractor_local_storage_value_set(key, TRUE) };
        Mark(key)
    });
}

/// Whether the main Ractor is running.
pub(crate) fn is_main(_: Gvl) -> bool {
    MARK.get().is_some_and(|mark| {
        // SAFETY: the key was created before, and Ruby code is running.
        unsafe { rb_sys::rb_ractor_local_storage_value(mark.0) == TRUE }
    })
}
