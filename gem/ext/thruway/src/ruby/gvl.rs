//! Proofs that the current thread may call Ruby.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;

use rb_sys::{VALUE, ruby_value_type};

use super::immediate::{NIL, TRUE};

/// Proof that the current thread holds the interpreter lock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gvl(PhantomData<*const ()>);

/// Proof that the current thread holds the lock, and that exceptions are caught further up: by [`Gvl::protect`] or
/// [`Gvl::catch`], or by Ruby code that called a method of ours.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProtectedCall(Gvl);

impl Gvl {
    /// # Safety
    /// The thread holds the interpreter lock as long as the value is used.
    pub(crate) unsafe fn assume() -> Self {
        Self(PhantomData)
    }

    /// Returns the result of `work`, or `None` if `work` raised. The exception is dropped, but a signal that arrived
    /// meanwhile, such as Ctrl-C, is sent again. No value in `work` has a destructor.
    pub(crate) fn protect<T>(self, work: impl FnOnce(ProtectedCall) -> T) -> Option<T> {
        let (result, state) = self.run_protected(work);
        if state != 0 {
            self.keep_signal();
            // SAFETY: clears the exception, which `None` reports.
            unsafe { rb_sys::rb_set_errinfo(NIL) };
        }
        result
    }

    /// Returns the result of `work`, or the exception that `work` raised. No value in `work` has a destructor.
    pub(crate) fn catch<T: Copy>(
        self,
        work: impl FnOnce(ProtectedCall) -> T,
    ) -> Result<T, NonLocalExit> {
        let (result, state) = self.run_protected(work);
        result.ok_or_else(|| NonLocalExit::take(self, state))
    }

    /// If the current exception stands for a signal to this process, sends the signal again. Ruby raises it when
    /// other code runs.
    fn keep_signal(self) {
        // SAFETY: the lock is held.
        let error = unsafe { rb_sys::rb_errinfo() };
        // SAFETY: Ruby's error info is a live object.
        let is_object = unsafe { rb_sys::RB_TYPE_P(error, ruby_value_type::RUBY_T_OBJECT) };
        // SAFETY: the class of signals lives as long as Ruby.
        let class = unsafe { rb_sys::rb_eSignal };
        // SAFETY: an object has a class, and this check calls no method.
        if is_object && unsafe { rb_sys::rb_obj_is_kind_of(error, class) } == TRUE {
            // SAFETY: the text ends in a NUL.
            let name = unsafe { rb_sys::rb_intern(c"signo".as_ptr()) };
            // SAFETY: Ruby keeps the signal's number in that variable.
            let number = unsafe { rb_sys::rb_ivar_get(error, name) };
            // The number is a small integer, whose lowest bit is a tag.
            let number = i32::try_from(number >> 1).unwrap_or(0);
            send_to_self(number);
        }
    }

    /// Returns the result of `work` if it returned, and the state in which it was left.
    fn run_protected<T>(self, work: impl FnOnce(ProtectedCall) -> T) -> (Option<T>, c_int) {
        struct Work<F, T> {
            work: Option<F>,
            result: Option<T>,
        }
        unsafe extern "C" fn run<F: FnOnce(ProtectedCall) -> T, T>(work: VALUE) -> VALUE {
            // SAFETY: `run_protected` passes the address of its own local, which outlives the call.
            let place = unsafe { &mut *(work as *mut Work<F, T>) };
            // SAFETY: `rb_protect` calls the function with the lock held, and catches exceptions.
            let protected = unsafe { ProtectedCall::assume() };
            place.result = place.work.take().map(|work| work(protected));
            NIL
        }
        fn runner<F: FnOnce(ProtectedCall) -> T, T>(
            _: &Work<F, T>,
        ) -> unsafe extern "C" fn(VALUE) -> VALUE {
            run::<F, T>
        }
        let mut work = Work { work: Some(work), result: None };
        let run = runner(&work);
        let mut state: c_int = 0;
        // SAFETY: `run` gets back the address of `work`.
        unsafe { rb_sys::rb_protect(Some(run), &raw mut work as VALUE, &raw mut state) };
        (work.result, state)
    }

    /// Lets other Ruby threads run while `wait` blocks. `unblock` ends the wait early, from another thread. If an
    /// interrupt is pending for this thread, `wait` may not run at all.
    ///
    /// `wait` is `Send`, so it cannot hold a proof of the lock, and uses no Ruby object.
    pub(crate) fn release<W: FnMut() + Send, U: Fn() + Sync>(self, mut wait: W, unblock: U) {
        unsafe extern "C" fn enter<W: FnMut()>(wait: *mut c_void) -> *mut c_void {
            // SAFETY: `release` passes a pointer to its closure, which outlives the call.
            let wait = unsafe { &mut *wait.cast::<W>() };
            wait();
            std::ptr::null_mut()
        }
        unsafe extern "C" fn end<U: Fn()>(unblock: *mut c_void) {
            // SAFETY: as above; Ruby calls the function only while the wait lasts.
            let unblock = unsafe { &*unblock.cast::<U>() };
            unblock();
        }
        let (wait, unblock) = ((&raw mut wait).cast(), (&raw const unblock).cast_mut().cast());
        // SAFETY: the callbacks fit their arguments, and this variant never raises.
        unsafe {
            rb_sys::rb_thread_call_without_gvl2(Some(enter::<W>), wait, Some(end::<U>), unblock)
        };
    }

    /// Lets other Ruby threads run during a system call. An interrupt ends the call with EINTR, or `call` does not run
    /// at all. `call` is `Send` for the same reason as in [`release`](Self::release).
    #[cfg(target_os = "linux")]
    pub(crate) fn release_for_call<C: FnMut() + Send>(self, mut call: C) {
        unsafe extern "C" fn enter<C: FnMut()>(call: *mut c_void) -> *mut c_void {
            // SAFETY: `release_for_call` passes a pointer to its closure, which outlives the call.
            let call = unsafe { &mut *call.cast::<C>() };
            call();
            std::ptr::null_mut()
        }
        // SAFETY: Ruby's own mark for "send the thread a signal", which Ruby compares and never calls.
        let by_signal =
            unsafe { std::mem::transmute::<isize, unsafe extern "C" fn(*mut c_void)>(-1) };
        // SAFETY: the function fits its argument, and this variant never raises.
        unsafe {
            rb_sys::rb_thread_call_without_gvl2(
                Some(enter::<C>),
                (&raw mut call).cast(),
                Some(by_signal),
                std::ptr::null_mut(),
            )
        };
    }
}

/// An exception, or another non-local exit (`throw`, `break`, the end of a thread).
#[derive(Debug, Clone, Copy)]
pub(crate) struct NonLocalExit {
    state: c_int,
    error: VALUE,
    is_exception: bool,
}

impl NonLocalExit {
    /// Takes the exception from Ruby. Any other unwinding stays in Ruby's error info, to be resumed.
    fn take(_: Gvl, state: c_int) -> Self {
        // SAFETY: the lock is held.
        let error = unsafe { rb_sys::rb_errinfo() };
        // SAFETY: Ruby's error info is a live object.
        let is = |kind| unsafe { rb_sys::RB_TYPE_P(error, kind) };
        let is_exception = is(ruby_value_type::RUBY_T_OBJECT) || is(ruby_value_type::RUBY_T_DATA);
        if is_exception {
            // SAFETY: nil is a valid error info.
            unsafe { rb_sys::rb_set_errinfo(NIL) };
        }
        Self { state, error, is_exception }
    }

    /// Whether the exit is an exception, which Ruby code could rescue.
    pub(crate) fn is_exception(self) -> bool {
        self.is_exception
    }

    pub(crate) fn error(self) -> VALUE {
        self.error
    }

    /// Resumes the exit.
    pub(crate) fn resume(self, _: ProtectedCall) -> ! {
        if self.is_exception {
            // SAFETY: `error` is an exception that Ruby raised.
            unsafe { rb_sys::rb_set_errinfo(self.error) };
        }
        // SAFETY: the state is the one that `rb_protect` returned; exceptions are caught further up.
        unsafe { rb_sys::rb_jump_tag(self.state) }
    }
}

impl ProtectedCall {
    /// # Safety
    /// The thread holds the interpreter lock as long as the value is used, and exceptions are caught further up,
    /// across frames without destructors.
    pub(crate) unsafe fn assume() -> Self {
        // SAFETY: this function's own contract.
        Self(unsafe { Gvl::assume() })
    }

    /// The proof of the lock alone.
    pub(crate) fn gvl(self) -> Gvl {
        self.0
    }

    /// Calls `body`, and then `after` even if `body` raises, as `ensure` does in Ruby.
    pub(crate) fn ensure<F: Fn(Self) -> VALUE>(self, body: F, after: fn()) -> VALUE {
        unsafe extern "C" fn run<F: Fn(ProtectedCall) -> VALUE>(body: VALUE) -> VALUE {
            // SAFETY: `ensure` passes the address of its own local, which outlives the call.
            let body = unsafe { &*(body as *const F) };
            // SAFETY: the caller of `ensure` has a proof that exceptions are caught further up.
            body(unsafe { ProtectedCall::assume() })
        }
        unsafe extern "C" fn end(after: VALUE) -> VALUE {
            // SAFETY: `ensure` passes the address of its own argument, which outlives the call.
            let after = unsafe { *(after as *const fn()) };
            after();
            NIL
        }
        let (body_at, after_at) = (&raw const body as VALUE, &raw const after as VALUE);
        // SAFETY: both functions get back the addresses that they expect.
        unsafe { rb_sys::rb_ensure(Some(run::<F>), body_at, Some(end), after_at) }
    }
}

/// Sends a signal to this process.
fn send_to_self(signal: c_int) {
    #[cfg(unix)]
    // SAFETY: `kill` has no preconditions. Sending a signal to the own process does not fail.
    unsafe {
        libc::kill(std::process::id().cast_signed(), signal)
    };
    #[cfg(windows)]
    // SAFETY: `raise` has no preconditions. Ruby has handlers for the signals that it raises as exceptions.
    unsafe {
        libc::raise(signal)
    };
}
