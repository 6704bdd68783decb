//! `Thruway::System`: what a supervisor asks of the system, and Ruby has no call for.

use std::mem::MaybeUninit;

use libc::c_int;
use rb_sys::VALUE;

use crate::ruby::define::{self, Method};
use crate::ruby::{NIL, Protected, RModule, boolean, is_true};

/// The signals that a supervisor decides on.
const SUPERVISED: [c_int; 10] = [
    libc::SIGTERM,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGHUP,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGURG,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGCHLD,
];

/// Defines `Thruway::System`.
pub(super) fn define(ruby: Protected, thruway: RModule) {
    let gvl = ruby.gvl();
    let module = define::module_under(ruby, thruway.value(), c"System");
    define::singleton_method(gvl, module, c"hold_signals", Method::of_1(hold_signals));
    define::singleton_method(gvl, module, c"adopt_orphans", Method::of_0(adopt_orphans));
}

/// `System.hold_signals(held)`: holds back the signals to a supervisor, over an `exec` too, or lets them come.
fn hold_signals(_: Protected, _: VALUE, held: VALUE) -> VALUE {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the call writes the whole set and cannot fail.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for signal in SUPERVISED {
        // SAFETY: the set is written, and the number is a signal's.
        unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
    }
    let how = if is_true(held) { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK };
    // SAFETY: the set is written; the old one is not asked for.
    unsafe { libc::pthread_sigmask(how, set.as_ptr(), std::ptr::null_mut()) };
    NIL
}

/// `System.adopt_orphans`: children of this process's children become its own when their parents end.
fn adopt_orphans(_: Protected, _: VALUE) -> VALUE {
    // SAFETY: the call takes a number and touches no memory.
    boolean(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) } == 0)
}
