//! Guards a child of a template against files of Rails that were loaded for other variables.
//!
//! When the child requires such a file, which its template has loaded already, the variables are compared with those
//! of the template.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::ruby::call::call;
use crate::ruby::{FALSE, Gvl, NIL, PinnedObject, ProtectedCall, RString, Symbol};

/// The guard of a child, set once before it is armed.
struct GuardState {
    /// The paths of the files, and the Proc that compares. The Proc returns whether more comparisons may follow.
    guard: OnceLock<(Vec<Vec<u8>>, PinnedObject)>,
    /// Whether comparisons may follow. Checked first, since most processes have no guard.
    is_armed: AtomicBool,
}

static STATE: GuardState = GuardState { guard: OnceLock::new(), is_armed: AtomicBool::new(false) };

/// Arms the guard: the Proc is called when one of those features is required.
pub(super) fn arm(gvl: Gvl, paths: Vec<Vec<u8>>, compare: rb_sys::VALUE) {
    STATE.guard.get_or_init(|| (paths, PinnedObject::new(gvl, compare)));
    STATE.is_armed.store(true, Ordering::SeqCst);
}

/// Compares the variables if `name` is one of the guarded files. May raise, and may not return.
pub(crate) fn check(ruby: ProtectedCall, name: rb_sys::VALUE) {
    if !STATE.is_armed.load(Ordering::Relaxed) {
        return;
    }
    let Some((paths, compare)) = STATE.guard.get() else { return };
    let gvl = ruby.gvl();
    let find = |name: &[u8]| paths.iter().find(|path| may_be(name, path));
    let Some(path) = RString::of(gvl, name).and_then(|name| name.read(gvl, find)) else { return };
    let path = RString::new(ruby.gvl(), path);
    let has_more = call(ruby, compare.value(), Symbol::new(ruby.gvl(), c"call"), &[path.value()]);
    STATE.is_armed.store(has_more != FALSE && has_more != NIL, Ordering::SeqCst);
}

/// Whether a name may refer to that file, from wherever it is searched. A superfluous comparison does no harm.
fn may_be(name: &[u8], path: &[u8]) -> bool {
    let mut name = name.strip_suffix(b".rb").unwrap_or(name);
    while let Some(rest) = name.strip_prefix(b"./").or_else(|| name.strip_prefix(b"../")) {
        name = rest;
    }
    let path = path.strip_suffix(b".rb").unwrap_or(path);
    let above = path.strip_suffix(name);
    above.is_some_and(|above| above.is_empty() || above.ends_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::may_be;

    #[test]
    fn a_file_is_known_by_each_of_its_names() {
        let path = b"/app/config/environment.rb";
        for name in [
            &path[..],
            b"/app/config/environment",
            b"./config/environment",
            b"../config/environment.rb",
            b"config/environment",
            b"environment",
        ] {
            assert!(may_be(name, path), "{}", String::from_utf8_lossy(name));
        }
        for name in [&b"/other/config/environment"[..], b"ronment", b"config/application"] {
            assert!(!may_be(name, path), "{}", String::from_utf8_lossy(name));
        }
    }
}
