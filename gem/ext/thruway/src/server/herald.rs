//! Requests for the interpreter lock while a thread computes.
//!
//! Ruby takes the lock from a computing thread after 100 ms. Fibers that are ready would wait for as long, again and
//! again. So their thread asks for the lock: Ruby runs a job of ours in the thread that computes, where Ruby could
//! switch threads by itself, and the job lets the threads that wait for the lock go first. The program sees what it
//! sees of any switch between threads.
//!
//! Ruby runs such a job in the calling thread, unless Ruby does not know that thread. So a thread of ours, the herald,
//! brings the requests to Ruby. `thruway_roles::LockRequests` says when.

use std::cell::Cell;
use std::ffi::{CStr, c_uint, c_void};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::roles::{HeraldBell, LockRequests, Roles};
use super::standby::hold_signals;
use crate::ruby::Gvl;

/// How long other threads may compute before the lock is asked for again. A switch between threads costs a hundredth of
/// that.
const GRANT: Duration = Duration::from_millis(1);

type Job = unsafe extern "C" fn(*mut c_void);
/// The function `rb_postponed_job_preregister` of Ruby 3.3 and later.
type Preregister = unsafe extern "C" fn(c_uint, Job, *mut c_void) -> c_uint;
/// The function `rb_postponed_job_trigger`, which any thread may call.
type Trigger = unsafe extern "C" fn(c_uint);

thread_local! {
    static GIVES_WAY: Cell<bool> = const { Cell::new(false) };
}

/// The thread that brings the requests to Ruby.
pub(super) struct Herald {
    thread: JoinHandle<()>,
    requests: LockRequests,
}

impl Herald {
    /// Starts the herald; `None` before Ruby 3.3, which has no way to ask.
    ///
    /// # Errors
    /// The system cannot create a thread.
    pub(super) fn start(_: Gvl) -> std::io::Result<Option<Self>> {
        let found = find(c"rb_postponed_job_preregister").zip(find(c"rb_postponed_job_trigger"));
        let Some((preregister, trigger)) = found else { return Ok(None) };
        // SAFETY: since Ruby 3.3 the function of that name has this signature.
        let preregister = unsafe { std::mem::transmute::<*mut c_void, Preregister>(preregister) };
        // SAFETY: as above.
        let trigger = unsafe { std::mem::transmute::<*mut c_void, Trigger>(trigger) };
        // SAFETY: the lock is held; the job lives as long as this library, which Ruby never unloads.
        let job = unsafe { preregister(0, give_way, std::ptr::null_mut()) };
        if job == c_uint::MAX {
            return Ok(None);
        }
        let requests = LockRequests::new(thruway_roles::LockRequests::new(HeraldBell::default()));
        let brought = Arc::clone(&requests);
        let thread =
            std::thread::Builder::new().name("thruway-herald".into()).spawn(move || {
                hold_signals();
                // SAFETY: the job was registered.
                brought.run_herald(|| unsafe { trigger(job) });
            })?;
        // No thread rings before this function has returned.
        requests.bell().set(thread.thread());
        Ok(Some(Self { thread, requests }))
    }

    pub(super) fn requests(&self) -> LockRequests {
        Arc::clone(&self.requests)
    }

    /// Ends the thread, which never takes the interpreter lock.
    pub(super) fn end(self) {
        self.requests.end();
        // A panic of the herald can have no further consequences.
        let _ = self.thread.join();
    }
}

/// Asks for the lock. Threads that compute get `GRANT` first, of which `waited` has passed. Called without the lock by
/// a thread that is about to take it, and that withdraws the request then.
pub(super) fn ask(requests: &LockRequests, roles: &Roles, waited: Duration) {
    requests.ask();
    if roles.load.computing() > 0 {
        std::thread::sleep(GRANT.saturating_sub(waited));
        requests.call_herald();
    }
}

/// Lets the threads that wait for the lock go first. Ruby calls this function in the computing thread. It raises
/// nothing, not even what is pending for the thread, because exceptions in such a job are lost.
unsafe extern "C" fn give_way(_: *mut c_void) {
    unsafe extern "C" fn nothing(_: *mut c_void) -> *mut c_void {
        std::ptr::null_mut()
    }
    let nobody = std::ptr::null_mut();
    GIVES_WAY.set(true);
    // SAFETY: the lock is held; the function fits its argument; this variant never raises.
    unsafe { rb_sys::rb_thread_call_without_gvl2(Some(nothing), nobody, None, nobody) };
    GIVES_WAY.set(false);
}

/// Whether the calling thread has released the lock for a moment, and computes on.
pub(super) fn gives_way() -> bool {
    GIVES_WAY.get()
}

fn find(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name ends in NUL; all loaded objects are searched.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}
