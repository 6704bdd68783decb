//! Ruby objects that Rust values keep alive.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};

use rb_sys::VALUE;

use crate::ruby::data_type::Marker;
use crate::ruby::{Gvl, NIL, Object, RString};

/// Objects that are kept alive, and are not moved, as long as their [`Root`]s live. A root may be dropped in a thread
/// that does not hold the interpreter lock.
#[derive(Default)]
pub(super) struct Roots {
    /// Used with the interpreter lock held. Ruby's collector reads the values in any allocation by Ruby, so no
    /// borrow lasts over an allocation.
    values: RefCell<Vec<VALUE>>,
    free: RefCell<Vec<usize>>,
    /// Slots whose roots were dropped. A thread with the interpreter lock never waits for this mutex: in a forked
    /// process, the mutex could stay locked for ever.
    ended: Mutex<Vec<usize>>,
}

// SAFETY: `values` and `free` are used with the interpreter lock held only; threads without it use `ended`.
unsafe impl Sync for Roots {}
// SAFETY: as above; to other threads, a VALUE is a number.
unsafe impl Send for Roots {}

/// An object that is kept alive.
pub(super) struct Root<T> {
    roots: Arc<Roots>,
    slot: usize,
    object: T,
}

impl Roots {
    pub(super) fn keep<T: Object>(self: &Arc<Self>, _: Gvl, object: T) -> Root<T> {
        self.forget_ended();
        let slot = self.free.borrow_mut().pop();
        let mut values = self.values.borrow_mut();
        let slot = slot.unwrap_or_else(|| {
            values.push(NIL);
            values.len() - 1
        });
        values[slot] = object.value();
        Root { roots: Arc::clone(self), slot, object }
    }

    /// Marks every object for Ruby's collector.
    pub(super) fn mark(&self, marker: Marker) {
        self.forget_ended();
        self.values.borrow().iter().for_each(|value| marker.mark(*value));
    }

    fn forget_ended(&self) {
        let Ok(mut ended) = self.ended.try_lock() else { return };
        for slot in ended.drain(..) {
            self.values.borrow_mut()[slot] = NIL;
            self.free.borrow_mut().push(slot);
        }
    }
}

impl<T: Object> Root<T> {
    pub(super) fn get(&self) -> T {
        self.object
    }
}

impl<T> Drop for Root<T> {
    fn drop(&mut self) {
        self.roots.ended.lock().unwrap_or_else(PoisonError::into_inner).push(self.slot);
    }
}

/// The bytes of a String that is being sent to a client. Any thread may send them.
pub(super) struct SentString {
    bytes: &'static [u8],
    _root: Root<VALUE>,
}

impl SentString {
    /// Keeps the current bytes of `string`.
    pub(super) fn new(gvl: Gvl, roots: &Arc<Roots>, string: RString) -> Self {
        let string = string.frozen(gvl).string();
        // SAFETY: the String is frozen, and its root keeps it alive and in place as long as this value lives.
        Self { bytes: unsafe { string.bytes() }, _root: roots.keep(gvl, string.value()) }
    }
}

impl AsRef<[u8]> for SentString {
    fn as_ref(&self) -> &[u8] {
        self.bytes
    }
}
