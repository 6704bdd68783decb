//! `$LOAD_PATH` as this crate's sibling knows it, rebuilt only when it has changed.

use std::cell::UnsafeCell;
use std::sync::OnceLock;

use rb_sys::VALUE;
use thruway_boot::{Boot, LoadPath};

use super::vm;

/// What was built last, and from what.
struct Built {
    /// `$LOAD_PATH` itself: Ruby never puts another array in its place.
    array: VALUE,
    /// A copy of it, which keeps its entries alive, so that none can be mistaken for a later one.
    copy: VALUE,
    load_path: LoadPath,
}

/// Reached only with the interpreter lock held.
struct Guarded(UnsafeCell<Built>);

// SAFETY: the interpreter lock serialises all access.
unsafe impl Sync for Guarded {}
// SAFETY: as above; a VALUE may be used on any thread that holds the lock.
unsafe impl Send for Guarded {}

static BUILT: OnceLock<Guarded> = OnceLock::new();

/// Calls `with` with the load path as it is now.
///
/// Ruby has expanded it before, and thereby frozen its strings, so equal entries are unchanged ones.
///
/// # Safety
/// The interpreter lock is held, and `with` calls nothing of Ruby's.
pub(super) unsafe fn current<T>(boot: &Boot, with: impl FnOnce(&LoadPath) -> T) -> T {
    let built = BUILT.get_or_init(|| Guarded(UnsafeCell::new(Built::new())));
    // SAFETY: the lock is held, and nobody gets at this while it is: `with` does not call Ruby.
    let built = unsafe { &mut *built.0.get() };
    built.refresh(boot);
    with(&built.load_path)
}

/// libruby has asked for the real path of something: perhaps because it expands its load path now.
///
/// # Safety
/// The interpreter lock is held.
pub(super) unsafe fn expanded(boot: &Boot, path: &[u8]) {
    // SAFETY: it is an Array, and no Ruby code runs while the slice lives.
    let entries = unsafe { vm::elements(vm::global(c"$LOAD_PATH")) };
    // SAFETY: as above, for the Strings.
    if entries.iter().any(|entry| unsafe { vm::plain_bytes(*entry) } == Some(path)) {
        // SAFETY: as this function's own.
        unsafe { current(boot, |_| ()) };
    }
}

impl Built {
    fn new() -> Self {
        let array = vm::kept(vm::global(c"$LOAD_PATH")).value();
        Self { array, copy: vm::kept_array().value(), load_path: LoadPath::default() }
    }

    /// Ruby expands its load path again when this array was changed, if only to what it was: when it no
    /// longer shares its memory with a copy. So does this, or a link would lead elsewhere for one of them.
    fn refresh(&mut self, boot: &Boot) {
        if vm::share_memory(self.copy, self.array) {
            return;
        }
        // SAFETY: it is an Array, and no Ruby code runs while the slice lives.
        let now = unsafe { vm::elements(self.array) };
        // SAFETY: as above; the Strings are frozen.
        let entries = now.iter().map(|entry| unsafe { vm::plain_bytes(*entry) });
        self.load_path = boot.files.load_path(entries);
        vm::replace_elements(self.copy, self.array);
    }
}
