//! `$LOAD_PATH.resolve_feature_path`: returns the file from which a feature would be loaded.
//!
//! Below Bundler, Ruby 3.3 calls this method at each `require` (`bundled_gems.rb`), and searches every folder of the
//! load path.

use std::ffi::CStr;
use std::sync::OnceLock;

use rb_sys::VALUE;

use super::{method, originals, require};
use crate::ruby::call::call_method;
use crate::ruby::constants::global;
use crate::ruby::define::{self, Method};
use crate::ruby::ractor;
use crate::ruby::{Gvl, NIL, PinnedObject, ProtectedCall, RString};

const NAME: &CStr = c"resolve_feature_path";

/// Ruby's own method.
static OWN: OnceLock<PinnedObject> = OnceLock::new();

/// Replaces Ruby's own method, unless a program has replaced it with Ruby code.
pub(super) fn install(gvl: Gvl) {
    let load_path = global(gvl, c"$LOAD_PATH");
    if method::is_native(gvl, load_path, c"method", NAME)
        && let Some(own) = originals::own_method(gvl, load_path, NAME)
    {
        OWN.get_or_init(|| PinnedObject::new(gvl, own));
        let resolve = Method::of_1(resolve);
        define::quietly(gvl, || define::singleton_method(gvl, load_path, NAME, resolve));
    }
}

fn resolve(ruby: ProtectedCall, _load_path: VALUE, name: VALUE) -> VALUE {
    // Raises the exceptions of Ruby's own method, but from here, so that a backtrace shows one method of this name.
    let name = RString::from_path(ruby, name);
    if !ractor::is_main(ruby.gvl()) {
        return call_own(ruby, name);
    }
    require::searching(ruby, |ruby| call_own(ruby, require::path_in_load_path(ruby.gvl(), name)))
}

fn call_own(ruby: ProtectedCall, name: RString) -> VALUE {
    OWN.get().map_or(NIL, |own| call_method(ruby, own.value(), &[name.value()]))
}
