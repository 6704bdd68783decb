//! Ruby objects that Rust holds on to, where Ruby's collector finds them.

use std::cell::RefCell;
use std::rc::Rc;

use rb_sys::VALUE;

use super::lock::{Lock, NIL};

/// Objects that are kept alive, and where they are, for as long as their [`Root`]s live.
///
/// Ruby's collector reads it at any allocation of Ruby's, so no borrow of it lasts over one.
#[derive(Default)]
pub(super) struct Roots {
    values: RefCell<Vec<VALUE>>,
    free: RefCell<Vec<usize>>,
}

/// One object that is kept alive.
pub(super) struct Root {
    roots: Rc<Roots>,
    place: usize,
    value: VALUE,
}

impl Roots {
    pub(super) fn keep(self: &Rc<Self>, value: VALUE) -> Root {
        let place = self.free.borrow_mut().pop();
        let mut values = self.values.borrow_mut();
        let place = place.unwrap_or_else(|| {
            values.push(NIL);
            values.len() - 1
        });
        values[place] = value;
        Root { roots: Rc::clone(self), place, value }
    }

    /// Tells Ruby's collector of every object.
    pub(super) fn mark(&self) {
        self.values.borrow().iter().for_each(|value| mark(*value));
    }
}

impl Root {
    pub(super) fn value(&self) -> VALUE {
        self.value
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        self.roots.values.borrow_mut()[self.place] = NIL;
        self.roots.free.borrow_mut().push(self.place);
    }
}

/// Tells Ruby's collector, which is at work, of one object.
pub(super) fn mark(value: VALUE) {
    // SAFETY: called while the collector marks; `value` is live, because it was marked ever since.
    unsafe { rb_sys::rb_gc_mark(value) };
}

/// The bytes of a String that are on their way to a client.
pub(super) struct SentString {
    root: Root,
}

impl SentString {
    /// What `string` holds now.
    pub(super) fn new(lock: Lock, roots: &Rc<Roots>, string: VALUE) -> Self {
        Self { root: roots.keep(lock.frozen_string(string)) }
    }
}

// SAFETY: engines of the gem are used with the interpreter lock held only, by whatever thread.
unsafe impl Send for SentString {}

impl AsRef<[u8]> for SentString {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the String is frozen and kept alive by its root.
        unsafe { crate::ruby::bytes(self.root.value()) }
    }
}
