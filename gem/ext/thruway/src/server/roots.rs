//! Ruby objects that Rust holds on to, where Ruby's collector finds them.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};

use rb_sys::VALUE;

use super::gvl::{Gvl, NIL};

/// Objects that are kept alive, and where they are, for as long as their [`Root`]s live. A root may end in
/// a thread that does not hold the interpreter gvl.
#[derive(Default)]
pub(super) struct Roots {
    /// Used with the interpreter lock held. Ruby's collector reads it at any allocation of Ruby's, so no
    /// borrow of it lasts over one.
    values: RefCell<Vec<VALUE>>,
    free: RefCell<Vec<usize>>,
    /// Places whose roots have ended. It is never waited for with the interpreter lock held: in a process that
    /// was forked meanwhile it would stay locked.
    ended: Mutex<Vec<usize>>,
}

// SAFETY: `values` and `free` are used with the interpreter lock held only; threads without it use `ended`.
unsafe impl Sync for Roots {}
// SAFETY: as above; values of Ruby's are numbers to other threads.
unsafe impl Send for Roots {}

/// One object that is kept alive.
pub(super) struct Root {
    roots: Arc<Roots>,
    place: usize,
    value: VALUE,
}

impl Roots {
    pub(super) fn keep(self: &Arc<Self>, value: VALUE) -> Root {
        self.forget_ended();
        let place = self.free.borrow_mut().pop();
        let mut values = self.values.borrow_mut();
        let place = place.unwrap_or_else(|| {
            values.push(NIL);
            values.len() - 1
        });
        values[place] = value;
        Root { roots: Arc::clone(self), place, value }
    }

    /// Tells Ruby's collector of every object.
    pub(super) fn mark(&self) {
        self.forget_ended();
        self.values.borrow().iter().for_each(|value| mark(*value));
    }

    fn forget_ended(&self) {
        let Ok(mut ended) = self.ended.try_lock() else { return };
        for place in ended.drain(..) {
            self.values.borrow_mut()[place] = NIL;
            self.free.borrow_mut().push(place);
        }
    }
}

impl Root {
    pub(super) fn value(&self) -> VALUE {
        self.value
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        self.roots.ended.lock().unwrap_or_else(PoisonError::into_inner).push(self.place);
    }
}

/// Tells Ruby's collector, which is at work, of one object.
pub(super) fn mark(value: VALUE) {
    // SAFETY: called while the collector marks; `value` is live, because it was marked ever since.
    unsafe { rb_sys::rb_gc_mark(value) };
}

/// The bytes of a String that are on their way to a client. Any thread may send them.
pub(super) struct SentString {
    bytes: &'static [u8],
    _root: Root,
}

impl SentString {
    /// What `string` holds now.
    pub(super) fn new(gvl: Gvl, roots: &Arc<Roots>, string: VALUE) -> Self {
        let string = gvl.frozen_string(string);
        // SAFETY: the String is frozen, and its root keeps it alive and in its place while this value lives.
        Self { bytes: unsafe { crate::ruby::bytes(string) }, _root: roots.keep(string) }
    }
}

impl AsRef<[u8]> for SentString {
    fn as_ref(&self) -> &[u8] {
        self.bytes
    }
}
