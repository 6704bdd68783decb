//! `Thruway.expand_path`: lexical expansion for Ruby.

use rb_sys::VALUE;
use thruway_resolve::{Flavour, expand};

use crate::ruby;

pub(crate) fn define(thruway: VALUE) {
    ruby::define_singleton_method_2(thruway, c"expand_path", expand_path);
}

unsafe extern "C" fn expand_path(_thruway: VALUE, name: VALUE, base: VALUE) -> VALUE {
    // SAFETY: Ruby calls with the lock held; both may raise, and nothing with a destructor lives yet.
    let name = unsafe { ruby::to_string(name) };
    // SAFETY: as above.
    let base = unsafe { ruby::to_string(base) };
    // SAFETY: both Strings are on this stack, and expand runs no Ruby code that could change them.
    let (name, base) = (unsafe { ruby::bytes(name) }, unsafe { ruby::bytes(base) });
    let expanded = expand(Flavour::Posix, name, base);
    ruby::utf8_string(&expanded)
}
