//! `Thruway::System`: system calls of a supervisor for which Ruby has no method.

use rb_sys::VALUE;

use crate::ruby::define::{self, Method};
use crate::ruby::{ProtectedCall, RModule, boolean};

/// Defines `Thruway::System`.
pub(super) fn define(ruby: ProtectedCall, thruway: RModule) {
    let gvl = ruby.gvl();
    let module = define::module_under(ruby, thruway.value(), c"System");
    define::singleton_method(gvl, module, c"adopt_orphans", Method::of_0(adopt_orphans));
}

/// `System.adopt_orphans`: makes this process the parent of its children's children when their parents end.
fn adopt_orphans(_: ProtectedCall, _: VALUE) -> VALUE {
    // SAFETY: the call takes a number and touches no memory.
    boolean(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) } == 0)
}
