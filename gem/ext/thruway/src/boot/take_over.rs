//! The start below `thruway run`: before RubyGems, and without a trace of it afterwards.

use std::sync::OnceLock;

use rb_sys::VALUE;

use super::vm::{self, Kept};

/// Takes our names out of `$LOADED_FEATURES`.
static CLEAN: OnceLock<Kept> = OnceLock::new();

/// `Thruway::Boot.take_over(clean)`: starts the boot, and keeps the Proc for [`finish`]. Answers whether
/// it is the first time.
pub(super) unsafe extern "C" fn take_over(module: VALUE, clean: VALUE) -> VALUE {
    let Some(folder) = vm::current_folder() else { return vm::boolean(false) };
    // SAFETY: the String is on this stack, and nothing below changes it.
    let folder = unsafe { crate::ruby::bytes(folder) };
    super::start_in(module, folder);
    vm::boolean(CLEAN.set(vm::kept(clean)).is_ok())
}

/// Whether `name` is the file that took over, by the name that `RUBYOPT` has for it.
pub(super) fn is_awaited(name: &[u8]) -> bool {
    let stem = name.strip_suffix(b".rb").unwrap_or(name);
    stem.ends_with(b"thruway/run") && CLEAN.get().is_some()
}

/// Whether a feature is the file of ours that Ruby has found for RubyGems.
pub(super) fn is_in_the_place_of_rubygems(feature: VALUE) -> bool {
    // SAFETY: the feature stays on the caller's stack, and no Ruby code runs while the slice lives.
    let path = unsafe { vm::plain_bytes(feature) };
    path.is_some_and(|path| path.ends_with(b"/thruway/first/rubygems.rb"))
}

/// Ruby requires that file again: its features become what they would be without us.
pub(super) fn finish() -> VALUE {
    if let Some(clean) = CLEAN.get() {
        vm::call_proc(clean.value());
    }
    vm::boolean(true)
}
