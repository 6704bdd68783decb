//! Events of the interpreter lock. Ruby 3.2 and later report when a thread releases the lock, and when it wants the
//! lock back.
//!
//! The function is looked up by name, so that one source works with every version of Ruby.

use std::ffi::{CStr, c_void};
use std::sync::Arc;

use super::herald;
use super::roles::{self, Roles};

/// The thread wants the lock back (`RUBY_INTERNAL_THREAD_EVENT_READY`).
const READY: u32 = 1 << 1;
/// The thread has acquired the lock (`RUBY_INTERNAL_THREAD_EVENT_RESUMED`).
const RESUMED: u32 = 1 << 2;
/// The thread has released the lock (`RUBY_INTERNAL_THREAD_EVENT_SUSPENDED`).
const SUSPENDED: u32 = 1 << 3;

type HookFunction = unsafe extern "C" fn(u32, *const c_void, *mut c_void);
/// The function `rb_internal_thread_add_event_hook`. It returns the hook, which is needed to remove it.
type AddHook = unsafe extern "C" fn(HookFunction, u32, *mut c_void) -> *mut c_void;

/// The function `rb_internal_thread_remove_event_hook`. It returns whether the hook existed.
type RemoveHook = unsafe extern "C" fn(*mut c_void) -> bool;

/// A hook and its data.
pub(super) struct GvlHook {
    hook: *mut c_void,
    roles: *const Roles,
}

/// Lets Ruby report suspensions to `roles` from now on; none if this Ruby cannot.
pub(super) fn subscribe(roles: &Arc<Roles>) -> Option<GvlHook> {
    let found = find(c"rb_internal_thread_add_event_hook")?;
    // SAFETY: since Ruby 3.2 the function of that name has this signature.
    let add_hook = unsafe { std::mem::transmute::<*mut c_void, AddHook>(found) };
    let measures = roles.load.observer().is_measured();
    let roles = Arc::into_raw(Arc::clone(roles));
    let events = if measures { SUSPENDED | READY | RESUMED } else { SUSPENDED | READY };
    // SAFETY: the callback fits the events and the data, which lives until the hook is removed.
    let hook = unsafe { add_hook(suspension, events, roles.cast_mut().cast()) };
    Some(GvlHook { hook, roles })
}

impl GvlHook {
    pub(super) fn end(self) {
        let Some(found) = find(c"rb_internal_thread_remove_event_hook") else { return };
        // SAFETY: since Ruby 3.2 the function of that name has this signature.
        let remove_hook = unsafe { std::mem::transmute::<*mut c_void, RemoveHook>(found) };
        // SAFETY: the hook was added, and is removed once.
        if unsafe { remove_hook(self.hook) } {
            // SAFETY: `subscribe` created the pointer from an Arc. Ruby calls hooks with a lock held that is also
            // taken to remove a hook, and then frees the hook itself. So no thread is in the callback.
            drop(unsafe { Arc::from_raw(self.roles) });
        }
    }
}

fn find(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name ends in NUL; all loaded objects are searched.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// Called by a thread that releases the lock, wants it back, or has acquired it. The callback may not touch any Ruby
/// object.
unsafe extern "C" fn suspension(event: u32, _thread: *const c_void, roles: *mut c_void) {
    // SAFETY: `subscribe` passed the pointer, which lives until the hook is removed.
    let roles = unsafe { &*roles.cast::<Roles>() };
    let figures = roles.load.observer();
    if event == RESUMED {
        return figures.note_got();
    }
    if !herald::gives_way() {
        roles::note_suspension(roles, event == SUSPENDED);
    }
    if event == READY && figures.is_measured() {
        figures.note_wanted();
    }
}
