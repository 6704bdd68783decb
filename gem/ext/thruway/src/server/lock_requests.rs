//! Requests for the interpreter lock while a thread computes.
//!
//! Ruby takes the lock from a computing thread after 100 ms. Fibers that are ready would wait for as long, again and
//! again. So their thread asks for the lock: Ruby runs a job of ours in the thread that computes, where Ruby could
//! switch threads by itself, and the job lets the threads that wait for the lock go first. The program sees what it
//! sees of any switch between threads.
//!
//! Ruby runs such a job in the calling thread, unless Ruby does not know that thread. So a thread of ours, the herald,
//! brings the requests to Ruby. It repeats them until the asking thread has the lock: several threads may compute, and
//! each of them passes the lock on to the next one.

use std::cell::Cell;
use std::ffi::{CStr, c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use super::roles::Roles;
use super::standby::hold_signals;
use crate::ruby::Gvl;

/// How long other threads may compute before the lock is asked for again. A switch between threads costs a hundredth of
/// that.
const GRANT: Duration = Duration::from_millis(1);

/// The time until a request is repeated for the first time, several times that of a switch between threads; it doubles
/// from time to time.
const REPEAT_MIN: Duration = Duration::from_micros(100);

/// The longest time until a request is repeated. A thread in a long call of a C library does not run the job.
const REPEAT_MAX: Duration = Duration::from_millis(5);

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
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
    requests: LockRequests,
}

/// A way to ask for the lock.
#[derive(Clone)]
pub(super) struct LockRequests {
    /// The number of threads that ask.
    asking: Arc<AtomicU32>,
    herald: Thread,
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
        let (is_over, asking) = (Arc::<AtomicBool>::default(), Arc::<AtomicU32>::default());
        let (ends, asked) = (Arc::clone(&is_over), Arc::clone(&asking));
        let thread =
            std::thread::Builder::new().name("thruway-herald".into()).spawn(move || {
                hold_signals();
                while !ends.load(Ordering::SeqCst) {
                    // SAFETY: the job was registered.
                    repeat(&asked, || unsafe { trigger(job) });
                    std::thread::park();
                }
            })?;
        let requests = LockRequests { asking, herald: thread.thread().clone() };
        Ok(Some(Self { is_over, thread, requests }))
    }

    pub(super) fn requests(&self) -> LockRequests {
        self.requests.clone()
    }

    /// Ends the thread, which never takes the interpreter lock.
    pub(super) fn end(self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.thread.thread().unpark();
        // A panic of the herald can have no further consequences.
        let _ = self.thread.join();
    }
}

impl LockRequests {
    /// Asks for the lock, if other threads compute. They get `GRANT` first, of which `waited` has passed. Called
    /// without the lock by a thread that is about to take it, and that calls [`withdraw`](Self::withdraw) then. Returns
    /// whether the thread has asked.
    pub(super) fn ask(&self, roles: &Roles, waited: Duration) -> bool {
        if roles.load.computing() == 0 {
            return false;
        }
        std::thread::sleep(GRANT.saturating_sub(waited));
        self.asking.fetch_add(1, Ordering::SeqCst);
        self.herald.unpark();
        true
    }

    /// Called by a thread that has asked and has the lock.
    pub(super) fn withdraw(&self) {
        self.asking.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Calls `trigger` until no thread asks any more.
fn repeat(asking: &AtomicU32, trigger: impl Fn()) {
    let mut pause = REPEAT_MIN;
    while asking.load(Ordering::SeqCst) > 0 {
        trigger();
        std::thread::park_timeout(pause);
        pause = (2 * pause).min(REPEAT_MAX);
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
