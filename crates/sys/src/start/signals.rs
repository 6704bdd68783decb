//! Signals around a start: none may run a handler in a process that shares this one's memory.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;

use crate::signal::Mask;

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

/// Blocks all signals until it is dropped.
pub(super) struct AllBlocked {
    pub(super) before: Mask,
}

impl AllBlocked {
    pub(super) fn new() -> Self {
        Self { before: Mask::full().set() }
    }
}

impl Drop for AllBlocked {
    fn drop(&mut self) {
        self.before.set();
    }
}
