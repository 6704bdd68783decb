//! The main Ractor, which alone runs our code: the others run at the same time, and may not even look
//! at what it keeps.

use std::sync::OnceLock;

use rb_sys::rb_ractor_local_key_t;

use super::gvl::Gvl;
use super::immediate::TRUE;

/// What only the main Ractor has a value for.
struct Mark(rb_ractor_local_key_t);

// SAFETY: a key is a name, which Ruby neither moves nor frees, for any thread to look up.
unsafe impl Send for Mark {}
// SAFETY: as above.
unsafe impl Sync for Mark {}

static MARK: OnceLock<Mark> = OnceLock::new();

/// The Ractor that is running is the main one: no other can load an extension that does not say that it
/// may.
pub(crate) fn mark_main(_: Gvl) {
    MARK.get_or_init(|| {
        // SAFETY: the lock is held.
        let key = unsafe { rb_sys::rb_ractor_local_storage_value_newkey() };
        // SAFETY: the key was made just now.
        unsafe { rb_sys::rb_ractor_local_storage_value_set(key, TRUE) };
        Mark(key)
    });
}

/// Whether the main Ractor is running.
pub(crate) fn is_main(_: Gvl) -> bool {
    MARK.get().is_some_and(|mark| {
        // SAFETY: the key was made before, and Ruby code is running.
        unsafe { rb_sys::rb_ractor_local_storage_value(mark.0) == TRUE }
    })
}
