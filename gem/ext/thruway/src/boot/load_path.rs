//! `$LOAD_PATH` as a [`LoadPath`], rebuilt only after a change.

use std::cell::UnsafeCell;
use std::sync::OnceLock;

use thruway_boot::{Boot, LoadPath};

use crate::ruby::constants::global;
use crate::ruby::{Gvl, PinnedObject, RArray, RString};

/// The load path that was built last, and the array that it was built from.
struct BuiltLoadPath {
    /// `$LOAD_PATH` itself. Ruby never replaces this array with another.
    array: RArray,
    /// A copy of the array. The copy keeps the entries alive, so that no new String can have the address of an old
    /// entry.
    copy: RArray,
    load_path: LoadPath,
}

/// A value that is reached only with the interpreter lock held.
struct GvlCell(UnsafeCell<BuiltLoadPath>);

// SAFETY: the interpreter lock serialises all access.
unsafe impl Sync for GvlCell {}
// SAFETY: as above; a VALUE may be used on any thread that holds the lock.
unsafe impl Send for GvlCell {}

static BUILT: OnceLock<GvlCell> = OnceLock::new();

/// Calls `with` with the current load path; returns `None` if `$LOAD_PATH` is not an Array.
///
/// Ruby has expanded the load path before, and has frozen its Strings, so equal entries are unchanged.
///
/// # Safety
/// `with` does not call Ruby.
pub(super) unsafe fn current<T>(
    gvl: Gvl,
    boot: &Boot,
    with: impl FnOnce(&LoadPath) -> T,
) -> Option<T> {
    if BUILT.get().is_none() {
        let built = BuiltLoadPath::new(gvl)?;
        BUILT.get_or_init(|| GvlCell(UnsafeCell::new(built)));
    }
    // SAFETY: the lock is held and `with` does not call Ruby, so there is no other reference.
    let built = unsafe { &mut *BUILT.get()?.0.get() };
    built.refresh(gvl, boot);
    Some(with(&built.load_path))
}

/// Called when libruby asks for a real path, which may mean that Ruby is expanding its load path. Rebuilds the load
/// path if the path is one of its entries.
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

impl GvlCell {
    /// Whether `$LOAD_PATH` has not changed since the load path was built.
    fn is_current(&self, gvl: Gvl) -> bool {
        // SAFETY: the lock is held, and no Ruby code runs here, so there is no other reference.
        let built = unsafe { &*self.0.get() };
        built.copy.shares_memory_with(gvl, built.array)
    }
}

impl BuiltLoadPath {
    fn new(gvl: Gvl) -> Option<Self> {
        let array = RArray::of(gvl, global(gvl, c"$LOAD_PATH"))?;
        let copy = RArray::with_room(gvl, 0);
        for array in [array, copy] {
            PinnedObject::new(gvl, array.value());
        }
        Some(Self { array, copy, load_path: LoadPath::default() })
    }

    /// Rebuilds the load path whenever Ruby expands its own. Ruby does so after each change of the array, even if the
    /// entries stay the same, and detects a change by whether the array still shares memory with a copy. This method
    /// uses the same test: otherwise a symbolic link could resolve differently for Ruby and for the boot.
    fn refresh(&mut self, gvl: Gvl, boot: &Boot) {
        if self.copy.shares_memory_with(gvl, self.array) {
            return;
        }
        // SAFETY: the array is pinned, and no Ruby code runs while the slice lives.
        let now = unsafe { self.array.elements() };
        let entries = now.iter().map(|entry| {
            // SAFETY: as above; the Strings are frozen.
            RString::plain(gvl, *entry).map(|entry| unsafe { entry.bytes() })
        });
        self.load_path = boot.files.load_path(entries);
        self.copy.share(gvl, self.array);
    }
}
