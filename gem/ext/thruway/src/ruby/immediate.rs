//! The objects that are no more than their number.

use rb_sys::VALUE;

pub(crate) const NIL: VALUE = rb_sys::Qnil as VALUE;
pub(crate) const TRUE: VALUE = rb_sys::Qtrue as VALUE;
pub(crate) const FALSE: VALUE = rb_sys::Qfalse as VALUE;

pub(crate) fn boolean(value: bool) -> VALUE {
    if value { TRUE } else { FALSE }
}

/// What Ruby takes for true.
pub(crate) fn is_true(value: VALUE) -> bool {
    value != FALSE && value != NIL
}
