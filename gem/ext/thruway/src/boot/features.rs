//! `$LOADED_FEATURES`, to which Ruby before 3.3 adds a feature by copying the whole array.
//!
//! Ruby keeps a snapshot of its features: a second array that shares the memory of the first until either is changed.
//! While the memory is shared, adding an element copies the array, which makes 16 MB of garbage for 1,800 features.
//! Ruby 3.3 clears the snapshot first (`rb_provide_feature`), and for older versions this module does the same. Ruby
//! takes a new snapshot after each element in any case.

use std::io;
use std::sync::OnceLock;

use rb_sys::VALUE;
use thruway_sys::imports::Object;

use super::{take_over, vm};
use crate::interpose::import::{imports, replace};
use crate::ruby::constants::global;
use crate::ruby::value::is_internal;
use crate::ruby::{Gvl, PinnedObject, RArray};

imports! { ARRAYS:
    PUSH c"rb_ary_push" push: OnArray;
    REPLACE c"rb_ary_replace" replace_elements: OnArray;
}

/// The arrays that hold Ruby's features. Each is set once, with the interpreter lock held.
struct FeatureArrays {
    /// `$LOADED_FEATURES`. Ruby never replaces this array with another.
    features: OnceLock<PinnedObject>,
    /// The snapshot, as soon as Ruby has passed it to an interposed function.
    snapshot: OnceLock<PinnedObject>,
}

static FEATURE_ARRAYS: FeatureArrays =
    FeatureArrays { features: OnceLock::new(), snapshot: OnceLock::new() };

/// Makes additions to Ruby's features cheap, without a copy.
///
/// # Errors
/// libruby is not found, or [`replace`] fails.
pub(super) fn grow_in_place(gvl: Gvl, libruby: *const ()) -> io::Result<()> {
    if vm::is_at_least(gvl, b"3.3") {
        return Ok(());
    }
    let object = Object::containing(libruby).ok_or(io::ErrorKind::NotFound)?;
    FEATURE_ARRAYS
        .features
        .get_or_init(|| PinnedObject::new(gvl, global(gvl, c"$LOADED_FEATURES")));
    replace(&object, ARRAYS.iter().copied())
}

type OnArray = unsafe extern "C" fn(VALUE, VALUE) -> VALUE;

unsafe extern "C" fn push(array: VALUE, element: VALUE) -> VALUE {
    if is_features(array) {
        // SAFETY: libruby holds the interpreter lock while it adds to an Array.
        let gvl = unsafe { Gvl::assume() };
        // Removing the feature later would make Ruby look up the real paths of all other features.
        if take_over::is_in_the_place_of_rubygems(gvl, element) {
            return array;
        }
        let snapshot =
            FEATURE_ARRAYS.snapshot.get().and_then(|snapshot| RArray::of(gvl, snapshot.value()));
        if let Some(snapshot) = snapshot {
            snapshot.clear(gvl);
        }
    }
    // SAFETY: this function runs, so the import was replaced.
    let push = unsafe { PUSH.original() };
    // SAFETY: the arguments are those of the caller.
    unsafe { push(array, element) }
}

unsafe extern "C" fn replace_elements(array: VALUE, other: VALUE) -> VALUE {
    if is_features(other) {
        // SAFETY: libruby holds the interpreter lock while it changes an Array.
        let gvl = unsafe { Gvl::assume() };
        if is_internal(gvl, array) {
            FEATURE_ARRAYS.snapshot.get_or_init(|| PinnedObject::new(gvl, array));
        }
    }
    // SAFETY: this function runs, so the import was replaced.
    let replace = unsafe { REPLACE.original() };
    // SAFETY: the arguments are those of the caller.
    unsafe { replace(array, other) }
}

fn is_features(array: VALUE) -> bool {
    FEATURE_ARRAYS.features.get().is_some_and(|features| features.value() == array)
}
