//! Integers.

use rb_sys::VALUE;

use super::gvl::{Gvl, Protected};

/// An object as a number, as Ruby converts arguments.
pub(crate) fn to_i64(_: Protected, value: VALUE) -> i64 {
    // SAFETY: a live object; what it raises is caught.
    unsafe { rb_sys::rb_num2long(value) }
}

/// An object as a number without a sign, as Ruby converts arguments.
pub(crate) fn to_u64(_: Protected, value: VALUE) -> u64 {
    // SAFETY: a live object; what it raises is caught.
    unsafe { rb_sys::rb_num2ull(value) }
}

/// The number that is the object itself; none if it is another object, or a large number.
pub(crate) fn small(value: VALUE) -> Option<i64> {
    // SAFETY: it is such a number.
    rb_sys::FIXNUM_P(value).then(|| unsafe { rb_sys::FIX2LONG(value) })
}

/// The same as an index or a count; zero if it is none.
pub(crate) fn small_count(value: VALUE) -> usize {
    small(value).and_then(|number| usize::try_from(number).ok()).unwrap_or(0)
}

pub(crate) fn from_u64(_: Gvl, number: u64) -> VALUE {
    // SAFETY: the lock is held.
    unsafe { rb_sys::rb_ull2inum(number) }
}
