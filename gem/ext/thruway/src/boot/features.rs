//! `$LOADED_FEATURES`, to which Ruby before 3.3 adds a feature by copying all of it.
//!
//! Ruby keeps a snapshot: an array that shares the memory of its features until either is changed. While it does, an
//! element that is added goes into a copy: 16 MB of garbage for 1,800 features. Ruby 3.3 empties the snapshot
//! first (`rb_provide_feature`), and so do we for older ones. Ruby makes a new one after each element in any case.

use std::ffi::c_void;
use std::io;
use std::sync::OnceLock;

use rb_sys::VALUE;
use thruway_sys::imports::Object;

use super::import::{imports, replace};
use super::{take_over, vm};
use crate::ruby::constants::global;
use crate::ruby::value::is_internal;
use crate::ruby::{Gvl, Pinned, RArray};

imports! { ARRAYS:
    PUSH c"rb_ary_push" push;
    REPLACE c"rb_ary_replace" replace_elements;
}

/// `$LOADED_FEATURES`: Ruby never puts another array in its place.
static FEATURES: OnceLock<Pinned> = OnceLock::new();
/// The array that shares their memory, once it was seen.
static SNAPSHOT: OnceLock<Pinned> = OnceLock::new();

/// Lets Ruby's features grow in place.
///
/// # Errors
/// libruby is not found, or as of [`replace`].
pub(super) fn grow_in_place(gvl: Gvl, libruby: *const ()) -> io::Result<()> {
    if vm::is_at_least(gvl, b"3.3") {
        return Ok(());
    }
    let object = Object::containing(libruby).ok_or(io::ErrorKind::NotFound)?;
    FEATURES.get_or_init(|| Pinned::new(gvl, global(gvl, c"$LOADED_FEATURES")));
    replace(&object, ARRAYS)
}

type OnArray = unsafe extern "C" fn(VALUE, VALUE) -> VALUE;

unsafe extern "C" fn push(array: VALUE, element: VALUE) -> VALUE {
    if is_features(array) {
        // SAFETY: libruby holds the interpreter lock while it adds to an Array.
        let gvl = unsafe { Gvl::assume() };
        // To take it out again would make Ruby ask for the real paths of all others.
        if take_over::is_in_the_place_of_rubygems(gvl, element) {
            return array;
        }
        let snapshot = SNAPSHOT.get().and_then(|snapshot| RArray::of(gvl, snapshot.value()));
        if let Some(snapshot) = snapshot {
            snapshot.clear(gvl);
        }
    }
    // SAFETY: the type is rb_ary_push's.
    let push = unsafe { PUSH.function::<OnArray>() };
    // SAFETY: handed on as it came.
    unsafe { push(array, element) }
}

unsafe extern "C" fn replace_elements(array: VALUE, other: VALUE) -> VALUE {
    if is_features(other) {
        // SAFETY: libruby holds the interpreter lock while it changes an Array.
        let gvl = unsafe { Gvl::assume() };
        if is_internal(gvl, array) {
            SNAPSHOT.get_or_init(|| Pinned::new(gvl, array));
        }
    }
    // SAFETY: the type is rb_ary_replace's.
    let replace = unsafe { REPLACE.function::<OnArray>() };
    // SAFETY: handed on as it came.
    unsafe { replace(array, other) }
}

fn is_features(array: VALUE) -> bool {
    FEATURES.get().is_some_and(|features| features.value() == array)
}
