//! Which signals are blocked.

use std::mem::MaybeUninit;

/// A set of signals to block.
#[derive(Clone, Copy)]
pub struct Mask(libc::sigset_t);

impl Mask {
    /// No signal at all.
    #[must_use]
    pub fn empty() -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: the call initialises the whole set and cannot fail.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        // SAFETY: initialised by the line above.
        Self(unsafe { set.assume_init() })
    }

    /// Every signal; the kernel leaves `SIGKILL` and `SIGSTOP` out.
    #[must_use]
    pub fn full() -> Self {
        let mut mask = Self::empty();
        // SAFETY: the set is writable and cannot fail to be filled.
        unsafe { libc::sigfillset(&raw mut mask.0) };
        mask
    }

    /// These signals.
    #[must_use]
    pub fn of(signals: &[i32]) -> Self {
        let mut mask = Self::empty();
        for signal in signals {
            // SAFETY: the set is writable; a number that is no signal is refused.
            unsafe { libc::sigaddset(&raw mut mask.0, *signal) };
        }
        mask
    }

    /// Blocks these signals and no others in the calling thread; returns the mask before.
    pub fn set(&self) -> Self {
        self.change(libc::SIG_SETMASK)
    }

    /// Blocks these signals too in the calling thread; returns the mask before.
    pub fn block(&self) -> Self {
        self.change(libc::SIG_BLOCK)
    }

    /// Takes these signals out of those that the calling thread blocks; returns the mask before.
    pub fn unblock(&self) -> Self {
        self.change(libc::SIG_UNBLOCK)
    }

    /// The raw set, for the kernel.
    pub(super) fn raw(&self) -> &libc::sigset_t {
        &self.0
    }

    fn change(&self, how: libc::c_int) -> Self {
        let mut before = Self::empty();
        // SAFETY: both sets are valid for the time of the call.
        unsafe { libc::pthread_sigmask(how, &raw const self.0, &raw mut before.0) };
        before
    }
}

impl std::fmt::Debug for Mask {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Mask")
    }
}
