//! Integers.

use rb_sys::VALUE;

use super::gvl::{Gvl, ProtectedCall};

/// Converts an object to a number, as Ruby converts arguments.
#[cfg_attr(not(windows), expect(clippy::useless_conversion, reason = "a long has 32 bits there"))]
pub(crate) fn to_i64(_: ProtectedCall, value: VALUE) -> i64 {
    // SAFETY: a live object; exceptions are caught further up.
    unsafe { rb_sys::rb_num2long(value) }.into()
}

/// Converts an object to an unsigned number, as Ruby converts arguments.
pub(crate) fn to_u64(_: ProtectedCall, value: VALUE) -> u64 {
    // SAFETY: a live object; exceptions are caught further up.
    unsafe { rb_sys::rb_num2ull(value) }
}

/// Converts a number to a floating point number, as Ruby converts arguments.
pub(crate) fn to_f64(_: ProtectedCall, value: VALUE) -> f64 {
    // SAFETY: a live object; exceptions are caught further up.
    unsafe { rb_sys::rb_num2dbl(value) }
}

/// The value of an Integer that is encoded in its VALUE; `None` for other objects and for large numbers.
pub(crate) fn small(value: VALUE) -> Option<i64> {
    // The lowest bit is the tag of such Integers.
    rb_sys::FIXNUM_P(value).then(|| value.cast_signed() >> 1)
}

/// As [`small`], for an index or a count; zero for other objects.
pub(crate) fn small_count(value: VALUE) -> usize {
    small(value).and_then(|number| usize::try_from(number).ok()).unwrap_or(0)
}

pub(crate) fn from_i64(_: Gvl, number: i64) -> VALUE {
    // SAFETY: the lock is held.
    unsafe { rb_sys::rb_ll2inum(number) }
}

pub(crate) fn from_u64(_: Gvl, number: u64) -> VALUE {
    // SAFETY: the lock is held.
    unsafe { rb_sys::rb_ull2inum(number) }
}
