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

impl Built {
    fn new() -> Self {
        let array = vm::kept(vm::global(c"$LOAD_PATH")).value();
        Self { array, copy: vm::kept_array().value(), load_path: LoadPath::default() }
    }

    fn refresh(&mut self, boot: &Boot) {
        // SAFETY: both are Arrays, and no Ruby code runs while the slices live.
        let (now, then) = (unsafe { vm::elements(self.array) }, unsafe { vm::elements(self.copy) });
        if now == then {
            return;
        }
        // SAFETY: as above; the Strings are frozen.
        let entries = now.iter().map(|entry| unsafe { vm::plain_bytes(*entry) });
        self.load_path = boot.load_path(entries);
        vm::replace_elements(self.copy, self.array);
    }
}
