//! A child asks for Rails' environment, which its template has loaded already: under the same variables?

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::ruby::call::call;
use crate::ruby::{Gvl, NIL, Pinned, Protected, RString, Symbol};

/// The path of the environment, and the Proc that compares.
static GUARD: OnceLock<(Vec<u8>, Pinned)> = OnceLock::new();
static IS_ARMED: AtomicBool = AtomicBool::new(false);

/// From now on the Proc is called once, when that feature is asked for.
pub(super) fn arm(gvl: Gvl, path: &[u8], compare: rb_sys::VALUE) {
    GUARD.get_or_init(|| (path.to_vec(), Pinned::new(gvl, compare)));
    IS_ARMED.store(true, Ordering::SeqCst);
}

/// Whether any feature has to be looked at; compares if it is the one. May raise, and may not come back.
pub(crate) fn check(ruby: Protected, name: rb_sys::VALUE) {
    if !IS_ARMED.load(Ordering::Relaxed) {
        return;
    }
    let Some((path, compare)) = GUARD.get() else { return };
    let is_it = RString::of(ruby.gvl(), name).is_some_and(|name| {
        // SAFETY: the name stays on the caller's stack, and no Ruby code runs while the slice lives.
        let name = unsafe { name.bytes() };
        name == &path[..] || path.strip_suffix(b".rb") == Some(name)
    });
    if is_it {
        IS_ARMED.store(false, Ordering::SeqCst);
        call(ruby, compare.value(), Symbol::new(ruby.gvl(), c"call"), &[NIL]);
    }
}
