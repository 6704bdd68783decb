//! Proofs that this thread may call Ruby.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;

use rb_sys::{VALUE, ruby_value_type};

use super::immediate::{NIL, TRUE};

/// Proof that this thread holds the interpreter lock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gvl(PhantomData<*const ()>);

/// Proof that this thread holds the lock, and that an exception is caught. [`Gvl::protect`] or [`Gvl::catch`] catches
/// it, or Ruby code that called a method of ours.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Protected(Gvl);

impl Gvl {
    /// # Safety
    /// This thread holds the interpreter lock as long as the value is used.
    pub(crate) unsafe fn assume() -> Self {
        Self(PhantomData)
    }

    /// What `work` gives; `None` if it raised, which is forgotten. A signal that came meanwhile, such as Ctrl-C, comes
    /// again. Nothing with a destructor lives in `work`.
    pub(crate) fn protect<T>(self, work: impl FnOnce(Protected) -> T) -> Option<T> {
        let (result, state) = self.run_protected(work);
        if state != 0 {
            self.keep_signal();
            // SAFETY: clears what was raised; `None` tells of it.
            unsafe { rb_sys::rb_set_errinfo(NIL) };
        }
        result
    }

    /// What `work` gives, or what it raised. Nothing with a destructor lives in it.
    pub(crate) fn catch<T: Copy>(self, work: impl FnOnce(Protected) -> T) -> Result<T, Raised> {
        let (result, state) = self.run_protected(work);
        result.ok_or_else(|| Raised::take(self, state))
    }

    /// If what was raised stands for a signal to this process, sends it again: Ruby raises it once other code runs.
    fn keep_signal(self) {
        // SAFETY: the lock is held.
        let error = unsafe { rb_sys::rb_errinfo() };
        // SAFETY: what Ruby has put there is a live object.
        let is_object = unsafe { rb_sys::RB_TYPE_P(error, ruby_value_type::RUBY_T_OBJECT) };
        // SAFETY: the class of signals lives as long as Ruby.
        let class = unsafe { rb_sys::rb_eSignal };
        // SAFETY: an object has a class; to ask for it calls no method.
        if is_object && unsafe { rb_sys::rb_obj_is_kind_of(error, class) } == TRUE {
            // SAFETY: the text ends in a NUL.
            let name = unsafe { rb_sys::rb_intern(c"signo".as_ptr()) };
            // SAFETY: Ruby keeps the signal's number there.
            let number = unsafe { rb_sys::rb_ivar_get(error, name) };
            // It is a small integer: its lowest bit says so, and is no part of it.
            let number = i32::try_from(number >> 1).unwrap_or(0);
            // SAFETY: `kill` has no preconditions. It fails for no signal of this process's own.
            unsafe { libc::kill(std::process::id().cast_signed(), number) };
        }
    }

    /// What `work` gives, if it gives something, and how it was left.
    fn run_protected<T>(self, work: impl FnOnce(Protected) -> T) -> (Option<T>, c_int) {
        struct Work<F, T> {
            work: Option<F>,
            result: Option<T>,
        }
        unsafe extern "C" fn run<F: FnOnce(Protected) -> T, T>(work: VALUE) -> VALUE {
            // SAFETY: `run_protected` passes the address of its own local, which outlives the call.
            let place = unsafe { &mut *(work as *mut Work<F, T>) };
            // SAFETY: `rb_protect` calls with the lock held, and catches.
            let protected = unsafe { Protected::assume() };
            place.result = place.work.take().map(|work| work(protected));
            NIL
        }
        fn runner<F: FnOnce(Protected) -> T, T>(
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

    /// Lets other Ruby threads run while `wait` blocks. `unblock` ends it early, in another thread. If something is
    /// pending for this thread, `wait` may not run at all.
    ///
    /// `wait` can go to another thread, and so it holds no proof of the lock: it touches nothing of Ruby's.
    pub(crate) fn release<W: FnMut() + Send, U: Fn() + Sync>(self, mut wait: W, unblock: U) {
        unsafe extern "C" fn enter<W: FnMut()>(wait: *mut c_void) -> *mut c_void {
            // SAFETY: `release` passes a pointer to its closure, which outlives the call.
            let wait = unsafe { &mut *wait.cast::<W>() };
            wait();
            std::ptr::null_mut()
        }
        unsafe extern "C" fn end<U: Fn()>(unblock: *mut c_void) {
            // SAFETY: as above; Ruby calls it only while the wait lasts.
            let unblock = unsafe { &*unblock.cast::<U>() };
            unblock();
        }
        let (wait, unblock) = ((&raw mut wait).cast(), (&raw const unblock).cast_mut().cast());
        // SAFETY: the callbacks fit their arguments, and this variant never raises.
        unsafe {
            rb_sys::rb_thread_call_without_gvl2(Some(enter::<W>), wait, Some(end::<U>), unblock)
        };
    }
}

/// What was raised: an exception, or what ends a thread or a block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Raised {
    state: c_int,
    error: VALUE,
    is_exception: bool,
}

impl Raised {
    /// Takes an exception from Ruby. What is none stays where Ruby has put it, to be resumed.
    fn take(_: Gvl, state: c_int) -> Self {
        // SAFETY: the lock is held.
        let error = unsafe { rb_sys::rb_errinfo() };
        // SAFETY: what Ruby has put there is a live object.
        let is = |kind| unsafe { rb_sys::RB_TYPE_P(error, kind) };
        let is_exception = is(ruby_value_type::RUBY_T_OBJECT) || is(ruby_value_type::RUBY_T_DATA);
        if is_exception {
            // SAFETY: nil is a valid error info.
            unsafe { rb_sys::rb_set_errinfo(NIL) };
        }
        Self { state, error, is_exception }
    }

    /// Whether it is an exception that can be rescued.
    pub(crate) fn is_exception(self) -> bool {
        self.is_exception
    }

    pub(crate) fn error(self) -> VALUE {
        self.error
    }

    /// Raises it again.
    pub(crate) fn resume(self, _: Protected) -> ! {
        if self.is_exception {
            // SAFETY: `error` is an exception that Ruby raised.
            unsafe { rb_sys::rb_set_errinfo(self.error) };
        }
        // SAFETY: the state is what `rb_protect` gave; what it raises is caught.
        unsafe { rb_sys::rb_jump_tag(self.state) }
    }
}

impl Protected {
    /// # Safety
    /// This thread holds the interpreter lock as long as the value is used, and an exception is caught across frames
    /// without destructors.
    pub(crate) unsafe fn assume() -> Self {
        // SAFETY: as this function's own.
        Self(unsafe { Gvl::assume() })
    }

    /// The proof of the lock alone.
    pub(crate) fn gvl(self) -> Gvl {
        self.0
    }

    /// Calls `body`, and `after` in any case, as `ensure` does.
    pub(crate) fn ensure<F: Fn(Self) -> VALUE>(self, body: F, after: fn()) -> VALUE {
        unsafe extern "C" fn run<F: Fn(Protected) -> VALUE>(body: VALUE) -> VALUE {
            // SAFETY: `ensure` passes the address of its own local, which outlives the call.
            let body = unsafe { &*(body as *const F) };
            // SAFETY: the caller of `ensure` has a proof that what goes on from there is caught.
            body(unsafe { Protected::assume() })
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
