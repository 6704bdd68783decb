//! Protects a start from signals: no handler may run in a process that shares its parent's memory.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;

use crate::signal::Mask;

/// Whether this process has installed a handler for `signal`.
pub(super) fn has_handler(signal: c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null action makes the call read only, and the buffer has room for one action.
    let result = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: zeroes are a valid action (the default), and sigaction writes a whole action.
    let handler = unsafe { action.assume_init() }.sa_sigaction;
    result == 0 && handler != libc::SIG_DFL && handler != libc::SIG_IGN
}

pub(super) fn set_default(signal: c_int) {
    // SAFETY: the default action runs nothing of this program.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// Blocks all signals until it is dropped, then restores the previous mask.
pub(super) struct BlockedSignals {
    pub(super) before: Mask,
}

impl BlockedSignals {
    pub(super) fn new() -> Self {
        Self { before: Mask::full().set() }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        self.before.set();
    }
}
