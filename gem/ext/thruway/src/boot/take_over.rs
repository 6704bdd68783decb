//! The start below `thruway run`, before RubyGems and without traces afterwards.

use std::sync::OnceLock;

use rb_sys::VALUE;

use crate::ruby::call::call;
use crate::ruby::{Gvl, PinnedObject, ProtectedCall, RString, Symbol, TRUE};

/// The Proc that removes our files from `$LOADED_FEATURES`.
static CLEAN: OnceLock<PinnedObject> = OnceLock::new();

/// Keeps the Proc for [`finish`]. Returns whether it is the first.
pub(super) fn keep(clean: PinnedObject) -> bool {
    CLEAN.set(clean).is_ok()
}

/// Whether `name` is the file that started the boot, as `RUBYOPT` names it.
pub(super) fn is_awaited(name: &[u8]) -> bool {
    let stem = name.strip_suffix(b".rb").unwrap_or(name);
    stem.ends_with(b"thruway/run") && CLEAN.get().is_some()
}

/// Whether a feature is our file that Ruby has found in place of RubyGems'.
pub(super) fn is_in_the_place_of_rubygems(gvl: Gvl, feature: VALUE) -> bool {
    let path = RString::plain(gvl, feature);
    let is_ours = |path: &[u8]| path.ends_with(b"/thruway/first/rubygems.rb");
    path.is_some_and(|path| path.read(gvl, is_ours))
}

/// Cleans Ruby's features when Ruby requires our file again: they become those of a start without Thruway.
pub(super) fn finish(ruby: ProtectedCall) -> VALUE {
    if let Some(clean) = CLEAN.get() {
        call(ruby, clean.value(), Symbol::new(ruby.gvl(), c"call"), &[]);
    }
    TRUE
}
