//! `Thruway::System`: system calls of a supervisor for which Ruby has no method.

use std::ffi::c_int;
use std::os::fd::BorrowedFd;

use rb_sys::VALUE;
use thruway_sys::descriptor;

use crate::ruby::define::{self, Method};
use crate::ruby::number::{from_u64, small};
use crate::ruby::{ProtectedCall, RModule, boolean};

/// Defines `Thruway::System`.
pub(super) fn define(ruby: ProtectedCall, thruway: RModule) {
    let gvl = ruby.gvl();
    let module = define::module_under(ruby, thruway.value(), c"System");
    define::singleton_method(gvl, module, c"adopt_orphans", Method::of_0(adopt_orphans));
    define::singleton_method(gvl, module, c"put_descriptor", Method::of_2(put_descriptor));
}

/// `System.adopt_orphans`: makes this process the parent of its children's children when their parents end.
fn adopt_orphans(_: ProtectedCall, _: VALUE) -> VALUE {
    // SAFETY: the call takes a number and touches no memory.
    boolean(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) } == 0)
}

/// `System.put_descriptor(descriptor, number)`: puts a copy of an open descriptor in the place of `number`, in one
/// step. Returns the number of the error, or 0. `IO#reopen` would raise IOError in threads that write to `number`
/// meanwhile.
fn put_descriptor(ruby: ProtectedCall, _: VALUE, open: VALUE, number: VALUE) -> VALUE {
    let descriptor = |value| small(value).and_then(|number| c_int::try_from(number).ok());
    let error = match (descriptor(open), descriptor(number)) {
        (Some(open), Some(number)) if open >= 0 => {
            // SAFETY: the caller's IO object keeps the descriptor open during the call.
            let open = unsafe { BorrowedFd::borrow_raw(open) };
            descriptor::put(open, number).err().and_then(|error| error.raw_os_error()).unwrap_or(0)
        }
        _ => libc::EBADF,
    };
    from_u64(ruby.gvl(), u64::from(error.unsigned_abs()))
}
