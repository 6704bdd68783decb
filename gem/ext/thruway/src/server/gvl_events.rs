//! Ruby 3.2 and later tell when a thread lets go of the interpreter lock, and when it wants it back.
//!
//! The function is looked up by its name, so that one source serves every Ruby.

use std::ffi::c_void;
use std::sync::Arc;

use super::signal::Signal;

/// The thread wants the lock back (`RUBY_INTERNAL_THREAD_EVENT_READY`).
const READY: u32 = 1 << 1;
/// The thread has the lock again (`RUBY_INTERNAL_THREAD_EVENT_RESUMED`).
const RESUMED: u32 = 1 << 2;
/// The thread has let go of the lock (`RUBY_INTERNAL_THREAD_EVENT_SUSPENDED`).
const SUSPENDED: u32 = 1 << 3;

type Callback = unsafe extern "C" fn(u32, *const c_void, *mut c_void);
/// `rb_internal_thread_add_event_hook`; it returns the hook, by which it could be removed.
type AddHook = unsafe extern "C" fn(Callback, u32, *mut c_void) -> *mut c_void;

/// Lets Ruby tell `signal` of suspensions from now on; false if this Ruby does not know how.
pub(super) fn subscribe(signal: &Arc<Signal>) -> bool {
    let name = c"rb_internal_thread_add_event_hook";
    // SAFETY: the name ends in NUL; whatever is loaded is searched.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if found.is_null() {
        return false;
    }
    // SAFETY: since Ruby 3.2 the function of that name has this signature.
    let add_hook = unsafe { std::mem::transmute::<*mut c_void, AddHook>(found) };
    let measures = signal.load.measures_waits();
    // The hook has no end.
    let signal = Arc::into_raw(Arc::clone(signal)).cast_mut().cast();
    let events = if measures { SUSPENDED | READY | RESUMED } else { SUSPENDED | READY };
    // SAFETY: the callback fits the events and the data, which lives for ever.
    unsafe { add_hook(suspension, events, signal) };
    true
}

/// Called by the thread that releases the lock, wants it back, or has it: it may touch nothing of Ruby's.
unsafe extern "C" fn suspension(event: u32, _thread: *const c_void, signal: *mut c_void) {
    // SAFETY: `subscribe` gave the pointer, and what it points at lives for ever.
    let signal = unsafe { &*signal.cast::<Signal>() };
    if event == RESUMED {
        return signal.load.note_got();
    }
    signal.note_suspension(event == SUSPENDED);
    if event == READY && signal.load.measures_waits() {
        signal.load.note_wanted();
    }
}
