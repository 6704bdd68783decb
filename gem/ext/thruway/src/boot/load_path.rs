//! `$LOAD_PATH` as this crate's sibling knows it, rebuilt only when it has changed.

use std::cell::UnsafeCell;
use std::sync::OnceLock;

use thruway_boot::{Boot, LoadPath};

use crate::ruby::constants::global;
use crate::ruby::{Gvl, Pinned, RArray, RString};

/// What was built last, and from what.
struct Built {
    /// `$LOAD_PATH` itself: Ruby never puts another array in its place.
    array: RArray,
    /// A copy of it, which keeps its entries alive, so that none can be mistaken for a later one.
    copy: RArray,
    load_path: LoadPath,
}

/// Reached only with the interpreter lock held.
struct Guarded(UnsafeCell<Built>);

// SAFETY: the interpreter lock serialises all access.
unsafe impl Sync for Guarded {}
// SAFETY: as above; a VALUE may be used on any thread that holds the lock.
unsafe impl Send for Guarded {}

static BUILT: OnceLock<Guarded> = OnceLock::new();

/// Calls `with` with the load path as it is now; `None` if `$LOAD_PATH` is no Array.
///
/// Ruby has expanded it before, and thereby frozen its strings, so equal entries are unchanged ones.
///
/// # Safety
/// `with` calls nothing of Ruby's.
pub(super) unsafe fn current<T>(
    gvl: Gvl,
    boot: &Boot,
    with: impl FnOnce(&LoadPath) -> T,
) -> Option<T> {
    if BUILT.get().is_none() {
        let built = Built::new(gvl)?;
        BUILT.get_or_init(|| Guarded(UnsafeCell::new(built)));
    }
    // SAFETY: the lock is held, and `with` does not call Ruby, so that there is no other reference.
    let built = unsafe { &mut *BUILT.get()?.0.get() };
    built.refresh(gvl, boot);
    Some(with(&built.load_path))
}

/// libruby has asked for the real path of something: perhaps because it expands its load path now.
pub(super) fn expanded(gvl: Gvl, boot: &Boot, path: &[u8]) {
    if BUILT.get().is_some_and(|built| built.is_current(gvl)) {
        return;
    }
    let Some(entries) = RArray::of(gvl, global(gvl, c"$LOAD_PATH")) else { return };
    let entry = |place| RString::plain(gvl, entries.get(gvl, place)?);
    let mut entries = (0..entries.len(gvl)).filter_map(entry);
    if entries.any(|entry| entry.read(gvl, |entry| entry == path)) {
        // SAFETY: the closure does nothing.
        unsafe { current(gvl, boot, |_| ()) };
    }
}

impl Guarded {
    /// Whether the load path has not been changed since it was built.
    fn is_current(&self, gvl: Gvl) -> bool {
        // SAFETY: the lock is held, and there is no other reference meanwhile: this calls no Ruby code.
        let built = unsafe { &*self.0.get() };
        built.copy.shares_memory_with(gvl, built.array)
    }
}

impl Built {
    fn new(gvl: Gvl) -> Option<Self> {
        let array = RArray::of(gvl, global(gvl, c"$LOAD_PATH"))?;
        let copy = RArray::with_room(gvl, 0);
        for array in [array, copy] {
            Pinned::new(gvl, array.value());
        }
        Some(Self { array, copy, load_path: LoadPath::default() })
    }

    /// Ruby expands its load path again when this array was changed, if only to what it was. The sign is
    /// that it no longer shares its memory with a copy. So does this, or a link would lead elsewhere for
    /// one of them.
    fn refresh(&mut self, gvl: Gvl, boot: &Boot) {
        if self.copy.shares_memory_with(gvl, self.array) {
            return;
        }
        // SAFETY: it is pinned, and no Ruby code runs while the slice lives.
        let now = unsafe { self.array.elements() };
        let entries = now.iter().map(|entry| {
            // SAFETY: as above; the Strings are frozen.
            RString::plain(gvl, *entry).map(|entry| unsafe { entry.bytes() })
        });
        self.load_path = boot.files.load_path(entries);
        self.copy.share(gvl, self.array);
    }
}
