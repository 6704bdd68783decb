//! Signal masks.

use std::mem::MaybeUninit;

/// A set of signals to block.
#[derive(Clone, Copy)]
pub struct Mask(libc::sigset_t);

impl Mask {
    /// Creates a mask without signals.
    #[must_use]
    pub fn empty() -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: the call initialises the whole set and cannot fail.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        // SAFETY: initialised by the line above.
        Self(unsafe { set.assume_init() })
    }

    /// Creates a mask of all signals. The kernel never blocks `SIGKILL` and `SIGSTOP`.
    #[must_use]
    pub fn full() -> Self {
        let mut mask = Self::empty();
        // SAFETY: the set is writable.
        unsafe { libc::sigfillset(&raw mut mask.0) };
        mask
    }

    /// Creates a mask of the given signals.
    #[must_use]
    pub fn of(signals: &[i32]) -> Self {
        let mut mask = Self::empty();
        for signal in signals {
            // SAFETY: the set is writable; the call rejects a number that is not a signal.
            unsafe { libc::sigaddset(&raw mut mask.0, *signal) };
        }
        mask
    }

    /// Blocks exactly these signals in the calling thread. Returns the previous mask.
    pub fn set(&self) -> Self {
        self.change(libc::SIG_SETMASK)
    }

    /// Blocks these signals in addition in the calling thread. Returns the previous mask.
    pub fn block(&self) -> Self {
        self.change(libc::SIG_BLOCK)
    }

    /// Unblocks these signals in the calling thread. Returns the previous mask.
    pub fn unblock(&self) -> Self {
        self.change(libc::SIG_UNBLOCK)
    }

    /// Returns the set in the kernel's layout.
    pub(super) fn raw(&self) -> &libc::sigset_t {
        &self.0
    }

    fn change(&self, how: libc::c_int) -> Self {
        let mut before = Self::empty();
        // SAFETY: both sets are valid for the duration of the call.
        unsafe { libc::pthread_sigmask(how, &raw const self.0, &raw mut before.0) };
        before
    }
}

impl std::fmt::Debug for Mask {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Mask")
    }
}
