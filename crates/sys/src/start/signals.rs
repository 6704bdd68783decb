//! Signals around a start: none may run a handler in a process that shares this one's memory.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;

/// Whether this process would run a function of its own on `signal`.
pub(super) fn has_handler(signal: c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: it only reads the action, into room for one.
    let result = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: zeroes are a valid action (the default), and sigaction writes whole ones.
    let handler = unsafe { action.assume_init() }.sa_sigaction;
    result == 0 && handler != libc::SIG_DFL && handler != libc::SIG_IGN
}

pub(super) fn set_default(signal: c_int) {
    // SAFETY: the default action runs nothing of this program.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

pub(super) fn set_mask(mask: &libc::sigset_t) {
    // SAFETY: the mask was read by the same function.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, ptr::null_mut()) };
}

/// All signals wait until this is dropped.
pub(super) struct BlockedSignals {
    pub(super) before: libc::sigset_t,
}

impl BlockedSignals {
    pub(super) fn new() -> Self {
        let mut all = MaybeUninit::uninit();
        // SAFETY: it fills the whole set.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        let mut before = MaybeUninit::zeroed();
        // SAFETY: `all` is filled, and there is room for the mask that was set.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
        // SAFETY: it has written the mask; zeroes, the empty mask, would be valid too.
        Self { before: unsafe { before.assume_init() } }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        set_mask(&self.before);
    }
}
