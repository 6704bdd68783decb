//! Proofs that this thread may call Ruby.

use std::ffi::c_int;
use std::marker::PhantomData;

use rb_sys::VALUE;

use super::immediate::NIL;

/// Proof that this thread holds the interpreter lock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gvl(PhantomData<*const ()>);

/// Proof that this thread holds the lock, and that an exception is caught: by [`Gvl::protect`], or by the Ruby code
/// that called a method of ours.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Protected(Gvl);

impl Gvl {
    /// # Safety
    /// This thread holds the interpreter lock as long as the value is used.
    pub(crate) unsafe fn assume() -> Self {
        Self(PhantomData)
    }

    /// What `work` gives; `None` if it raised, which is forgotten. Nothing with a destructor lives in it.
    pub(crate) fn protect<T>(self, work: impl FnOnce(Protected) -> T) -> Option<T> {
        struct Work<F, T> {
            work: Option<F>,
            result: Option<T>,
        }
        unsafe extern "C" fn run<F: FnOnce(Protected) -> T, T>(work: VALUE) -> VALUE {
            // SAFETY: `protect` passes the address of its own local, which outlives the call.
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
        if state != 0 {
            // SAFETY: clears what was raised, which is answered by `None`.
            unsafe { rb_sys::rb_set_errinfo(NIL) };
        }
        work.result
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
