//! Objects that are encoded in their VALUE.

use rb_sys::VALUE;

pub(crate) const NIL: VALUE = rb_sys::Qnil as VALUE;
pub(crate) const TRUE: VALUE = rb_sys::Qtrue as VALUE;
pub(crate) const FALSE: VALUE = rb_sys::Qfalse as VALUE;

pub(crate) fn boolean(value: bool) -> VALUE {
    if value { TRUE } else { FALSE }
}

/// Whether Ruby treats the value as true.
pub(crate) fn is_true(value: VALUE) -> bool {
    value != FALSE && value != NIL
}
